package diagnosis

import (
	"testing"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/topology"
)

func TestLoops(t *testing.T) {
	l := discovery.Loop{Blocked: topology.PortRef{Switch: 2, Port: 3}, Other: topology.PortRef{Switch: 1, Port: 4}}
	got := Loops([]discovery.Loop{l}, func(of discovery.Loop) string { return "connected with " + of.Other.String() })
	if len(got) != 1 || got[0].Fault != Loop || got[0].From != l.Blocked || got[0].Found != "connected with "+l.Other.String() || got[0].Remedy == "" {
		t.Errorf("%+v", got)
	}
}
