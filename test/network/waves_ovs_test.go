package network_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// Open vSwitch looks at some faults only when a bundle is committed: what earlier
// waves have written is taken back then.
func TestWavesOverOpenVSwitch(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netwaves", 2, delayline.Params{}))
	var o *network.Owner
	n, _ := run(t, l, network.Config{}, func(n *network.Network) {
		var err error
		if o, err = n.Owner("svc", network.OwnerOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	ready(t, n, 2, 1, 2)
	waves := [][]openflow.DatapathID{{2}, {1}}
	bad := networktest.TCPTo(1, 82, 1)
	bad.Actions = []openflow.Action{openflow.GroupAction(o.GroupID(99))}
	ports := func(s string) string {
		var out []string
		for _, p := range []string{"80", "81", "82"} {
			if strings.Contains(flows(t, l, s), "tp_dst="+p+" ") {
				out = append(out, p)
			}
		}
		return strings.Join(out, " ")
	}
	for _, atomic := range []bool{false, true} {
		opts := network.ApplyOptions{Atomic: atomic, Waves: waves}
		err := o.Apply(t.Context(), "k", networktest.Program(networktest.TCPTo(2, 80, 1), networktest.TCPTo(2, 81, 1), networktest.TCPTo(1, 80, 1), bad), opts)
		var re *network.RuleError
		if !errors.Is(err, network.ErrRefused) || !errors.As(err, &re) || re.Rule == nil || re.Rule.Match != bad.Match {
			t.Errorf("atomic %v: error does not name the refused rule: %v", atomic, err)
		}
		if one, two := ports("s1"), ports("s2"); one != "" || two != "" {
			t.Errorf("atomic %v: left are %q and %q", atomic, one, two)
		}
		var report network.ApplyReport
		opts.Report = &report
		networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(2, 80, 1), networktest.TCPTo(2, 81, 1), networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)), opts)
		if one, two := ports("s1"), ports("s2"); one != "80 81" || two != "80 81" || len(report.Waves) != 2 {
			t.Errorf("atomic %v: there are %q and %q, %+v", atomic, one, two, report)
		}
		networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 2)), opts)
		if one, two := ports("s1"), ports("s2"); one != "80" || two != "" {
			t.Errorf("atomic %v: there are %q and %q", atomic, one, two)
		}
		if _, modified, deleted := report.Total(); modified != 1 || deleted != 3 {
			t.Errorf("atomic %v: %+v", atomic, report)
		}
		networktest.Apply(t, o, "k", networktest.Program(), network.ApplyOptions{})
	}
}
