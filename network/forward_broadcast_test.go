package network_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// TestOneRefusingSwitchHoldsUpNoOther checks that a switch which refuses the rules of default
// forwarding does not keep others from getting theirs.
func TestOneRefusingSwitchHoldsUpNoOther(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{})
	refusing := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		f, ok := m.(*openflow.FlowMod)
		if ok && f.Priority >= network.StageRoute.Base() && f.Priority < network.StageWay.Base() {
			return &openflow.Error{Code: openflow.FlowModTableFull}
		}
		return nil
	}})
	networktest.Connect(t, n, refusing, 1)
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 2, Ports: 3}), 2)
	networktest.Edges(t, n, 2, 3)
	s, _ := n.Switch(1)
	for _, r := range s.Rules() {
		if strings.HasPrefix(r.Name, "base/") {
			t.Errorf("the refused rule %v is taken to be there", r.Match)
		}
	}
}
