package diagnosis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

func TestSwitches(t *testing.T) {
	at := func(d openflow.DatapathID, port uint32) topology.PortRef {
		return topology.PortRef{Switch: d, Port: port}
	}
	sw := func(d openflow.DatapathID, role openflow.Role) diagnosis.Switch {
		return diagnosis.Switch{ID: d, Address: fmt.Sprintf("192.0.2.%d", d), Role: role, Ports: map[uint32]bool{1: true, 2: false}}
	}
	var many []diagnosis.Switch
	for d := range openflow.DatapathID(10) {
		many = append(many, sw(d+10, openflow.RoleEqual))
	}
	now := time.Unix(1e9, 0)
	drifting := func(times uint64, ago time.Duration) []diagnosis.Switch {
		s := sw(1, openflow.RoleMaster)
		s.Drift = diagnosis.Drift{Times: times, Last: now.Add(-ago), Differences: map[string]int{"sos: rule": 4, "forwarding: group": 1}}
		return []diagnosis.Switch{s}
	}
	one := []diagnosis.Switch{sw(1, openflow.RoleMaster)}
	for name, c := range map[string]struct {
		configured []topology.PortRef
		connected  []diagnosis.Switch
		want, says string
	}{
		"nothing configured":    {nil, one, "", ""},
		"all there":             {[]topology.PortRef{at(1, 0), at(1, 1)}, one, "", ""},
		"absent, told once":     {[]topology.PortRef{at(2, 4), at(2, 0), at(1, 0)}, one, "absent 2/0", "not connected"},
		"another datapath ID":   {[]topology.PortRef{at(2, 0)}, one, "absent 2/0", "without being named, 0000000000000001 from 192.0.2.1"},
		"among many":            {[]topology.PortRef{at(2, 0)}, many, "absent 2/0", "6 more"},
		"no such port":          {[]topology.PortRef{at(1, 3)}, one, "no-port 1/3", "none of this number"},
		"port down":             {[]topology.PortRef{at(1, 2)}, one, "port-down 1/2", "down"},
		"another one is master": {nil, []diagnosis.Switch{sw(1, openflow.RoleSlave)}, "slave 1/0", "master"},
		"drifted once":          {nil, drifting(1, time.Minute), "", ""},
		"drifts again":          {nil, drifting(2, time.Minute), "drifting 1/0", "2 comparisons have found the switch not as declared, the latest 1m0s ago: forwarding: group 1, sos: rule 4"},
		"has drifted long ago":  {nil, drifting(99, 2*time.Hour), "", ""},
		"absent beside others":  {[]topology.PortRef{at(1, 0), at(3, 0)}, append(one, sw(9, openflow.RoleEqual)), "absent 3/0", "0000000000000009"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range diagnosis.Switches(c.configured, c.connected, now) {
				got = append(got, fmt.Sprintf("%s %d/%d", f.Fault, f.From.Switch, f.From.Port))
				if !strings.Contains(f.Found, c.says) || f.Remedy == "" {
					t.Errorf("%+v does not say %q", f, c.says)
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("found %q, want %q", s, c.want)
			}
		})
	}
}
