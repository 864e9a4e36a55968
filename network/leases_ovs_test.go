//go:build !race

package network_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestLeasesAreRenewed: a leased rule is on the switch for longer than the
// switch keeps it by itself, as long as the controller is there.
func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netlease", 1, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 1, 0, 1)
	o := owner(t, n, "svc", network.OwnerOptions{})
	p := program(tcpTo(openflow.DatapathID(l.Switch("s1").DPID()), 80, 1))
	p.Rules[0].Leased = true
	apply(t, o, "web", p, network.ApplyOptions{})
	want := fmt.Sprintf("hard_timeout=%d, priority=%d,tcp,tp_dst=80", rule.LeaseFor/time.Second, p.Rules[0].Priority())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < rule.LeaseFor*5/4; <-tick.C {
		rules, err := l.Switch("s1").Ofctl(t.Context(), "dump-flows")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(rules, want) {
			t.Fatalf("after %v there is no %q in\n%s", time.Since(began), want, rules)
		}
	}
}
