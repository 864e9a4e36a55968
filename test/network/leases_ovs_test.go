package network_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestLeasesAreRenewed: the controller renews a leased rule before the switch removes it.
func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netlease", 1, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 1, 0, 1)
	o := networktest.Owner(t, n, "svc", network.OwnerOptions{})
	p := networktest.Program(networktest.TCPTo(openflow.DatapathID(l.Switch("s1").DPID()), 80, 1))
	p.Rules[0].Leased = true
	networktest.Apply(t, o, "web", p, network.ApplyOptions{})
	// The switch counts how long it has had a rule. A rule that is younger than it was has been
	// renewed before the switch would have removed it.
	line := regexp.MustCompile(fmt.Sprintf(`duration=([0-9.]+)s,.*hard_timeout=%d,.*priority=%d,tcp,tp_dst=80`, rule.LeaseFor/time.Second, p.Rules[0].Priority()))
	age := func() float64 {
		rules, err := l.Switch("s1").Ofctl(t.Context(), "dump-flows")
		if err != nil {
			t.Fatal(err)
		}
		m := line.FindStringSubmatch(rules)
		if m == nil {
			t.Fatalf("there is no %v in\n%s", line, rules)
		}
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	for range 2 {
		oldest := age()
		networktest.Eventually(t, "the rule to be renewed", func() bool {
			now := age()
			renewed := now < oldest
			oldest = now
			return renewed
		})
	}
}
