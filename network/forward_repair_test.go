package network_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// forwarded makes default forwarding write the rules between hosts 1 and 2 behind ports 1 and 2 of
// a switch, and then ends the controller.
func forwarded(t *testing.T, s *fake.Switch) {
	t.Helper()
	n, stop := networktest.Start(t, network.Config{Generation: 1})
	cut := networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	receive(t, s, 1, networktest.Frame(1, 2))
	receive(t, s, 2, networktest.Frame(2, 1))
	receive(t, s, 1, networktest.Frame(1, 2))
	sw, _ := n.Switch(1)
	networktest.Eventually(t, "two rules", func() bool { return sw.Stats().ForwardRules == 2 })
	stop()
	cut()
}

// leads returns the ports by which a packet from host i, which arrives at the port, to host j
// leaves.
func leads(s *fake.Switch, port uint32, i, j int) []uint32 {
	return s.Table().Send(port, fake.PacketOf(networktest.Frame(i, j))).Ports()
}

// TestAdoptedRulesToPortsThatDiedMeanwhileGo checks that rules from before a restart are deleted
// if their port went down while no controller ran.
func TestAdoptedRulesToPortsThatDiedMeanwhileGo(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3})
	forwarded(t, s)
	_ = s.SetPort(2, false) // no controller is connected
	n, _ := networktest.Start(t, network.Config{Generation: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Eventually(t, "the rule to the dead port to be deleted", func() bool {
		got := leads(s, 1, 1, 2)
		return len(got) == 1 && got[0] == openflow.PortController
	})
}

// TestAdoptedRulesDoNotLeadToWhereAHostWas checks that a host which appears at another port after
// a restart gets its traffic there, although the new controller does not know its former place.
func TestAdoptedRulesDoNotLeadToWhereAHostWas(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3})
	forwarded(t, s)
	n, _ := networktest.Start(t, network.Config{Generation: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	receive(t, s, 3, networktest.Frame(2, 1)) // host 2 has moved from port 2 to port 3
	networktest.Eventually(t, "the rule to the old place to be gone", func() bool {
		got := leads(s, 1, 1, 2)
		return len(got) == 1 && got[0] != 2
	})
}

// TestRefusedForwardingRulesAreForgotten checks that refused rules do not occupy places for ever,
// so that others can be installed once there is room.
func TestRefusedForwardingRulesAreForgotten(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{ForwardRules: 100})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	sw, _ := n.Switch(1)
	receive(t, s, 2, networktest.Frame(1000, 1)) // the destination of all packets
	s.Table().SetLimit(len(s.Table().Entries()))
	for i := range 100 {
		receive(t, s, 1, networktest.Frame(i+1, 1000))
	}
	networktest.Eventually(t, "the refusals", func() bool { return sw.Stats().Errors >= 100 })
	s.Table().SetLimit(fake.MaxEntries)
	networktest.Eventually(t, "the refused rules to be forgotten", func() bool { return sw.Stats().ForwardRules == 0 })
	receive(t, s, 1, networktest.Frame(200, 1000))
	networktest.Eventually(t, "a rule for a new flow", func() bool { return leads(s, 1, 200, 1000)[0] == 2 })
}

// TestStuckSwitchDoesNotDelayRepairs checks that a switch which no longer answers does not delay
// the repair of paths elsewhere.
func TestStuckSwitchDoesNotDelayRepairs(t *testing.T) {
	var stuck atomic.Bool
	release := make(chan struct{})
	n, _ := networktest.Start(t, network.Config{RequestTimeout: 3 * networktest.Timeout, EchoInterval: 3 * networktest.Timeout})
	dead := fake.NewSwitch(fake.Options{DPID: 9, Ports: 3, Refuse: func(m openflow.Message) *openflow.Error {
		if stuck.Load() {
			<-release
		}
		return nil
	}})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3})
	networktest.Connect(t, n, s, 1)
	networktest.Connect(t, n, dead, 9)
	t.Cleanup(func() { close(release) })
	networktest.Edges(t, n, 1, 3)
	networktest.Edges(t, n, 9, 3)
	receive(t, s, 1, networktest.Frame(1, 2))
	receive(t, s, 2, networktest.Frame(2, 1))
	receive(t, s, 1, networktest.Frame(1, 2))
	sw, _ := n.Switch(1)
	networktest.Eventually(t, "two rules", func() bool { return sw.Stats().ForwardRules == 2 })
	if err := dead.SetPort(3, false); err != nil { // its broadcast rules change, and it does not answer
		t.Fatal(err)
	}
	stuck.Store(true)
	networktest.Eventually(t, "the port to be down", func() bool { return !n.IsEdge(network.PortRef{Switch: 9, Port: 3}) })
	third := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2})
	networktest.Connect(t, n, third, 5)
	receive(t, s, 3, networktest.Frame(2, 1)) // host 2 moves
	networktest.Eventually(t, "the flow to follow the host", func() bool { return leads(s, 1, 1, 2)[0] == 3 })
	if _, is := n.Switch(9); !is {
		t.Error("the repair waited until the session with the dead switch had ended")
	}
}

// TestHandlersCanBeListedAtAnyTime checks that the chain can be listed while the network starts.
func TestHandlersCanBeListedAtAnyTime(t *testing.T) {
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	networktest.Background(t, func(ctx context.Context) error { return n.Run(ctx) })
	for range 1000 {
		n.Handlers()
	}
	networktest.Eventually(t, "the whole chain", func() bool { return len(n.Handlers()) == 3 })
}
