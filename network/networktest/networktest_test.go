package networktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStart connects a switch, installs a rule, and disconnects the switch.
func TestStart(t *testing.T) {
	var o *network.Owner
	n, _ := Start(t, network.Config{}, func(n *network.Network) { o = Owner(t, n, "service", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	stop := Connect(t, n, s, 1)
	Apply(t, o, "rule", Program(TCPTo(1, 80, 2)), network.ApplyOptions{})
	WantRules(t, s, map[uint16]uint32{80: 2})
	stop()
	Down(t, n, 1)
}
