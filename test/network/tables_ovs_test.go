package network_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Open vSwitch has tables; where it says that all but the first take no rules, the pipeline
// is in one.
func TestTablesOfOpenVSwitch(t *testing.T) {
	t.Parallel()
	topology := lab.Line("nettables", 2, delayline.Params{})
	topology.Switches[1].Tables = 1
	l := lab.New(t, topology)
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	for name, want := range map[string]bool{"s1": true, "s2": false} {
		sw := l.Switch(name)
		s, ok := n.Switch(openflow.DatapathID(sw.DPID()))
		if !ok || s.Layout().Tables() != want {
			t.Errorf("%s: tables %v, want %v", name, s.Layout().Tables(), want)
		}
		flows, err := sw.Ofctl(t.Context(), "dump-flows")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"table=1, ", "table=2, ", "goto_table:1", "goto_table:2"} {
			if strings.Contains(flows, line) != want {
				t.Errorf("%s: %q is there: %v\n%s", name, line, !want, flows)
			}
		}
	}
	ping(t, l, "h1", "h2")
}
