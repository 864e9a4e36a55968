package network_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// linked are two switches whose second ports are joined by a cable, and the number of
// frames that it has carried.
func linked(a, b openflow.DatapathID) (left, right *fake.Switch, carried *atomic.Int64) {
	carried = new(atomic.Int64)
	cable := func(to **fake.Switch) func(uint32, []byte) {
		return func(port uint32, frame []byte) {
			if port == 2 {
				carried.Add(1)
				_, _ = (*to).Receive(2, frame) // it may not be connected yet
			}
		}
	}
	left = fake.NewSwitch(fake.Options{DPID: a, Ports: 2, OnOutput: cable(&right)})
	right = fake.NewSwitch(fake.Options{DPID: b, Ports: 2, OnOutput: cable(&left)})
	return left, right, carried
}

// pair connects two linked switches whose sessions and link must survive what others do:
// the test fails as soon as one of them ends.
func pair(t *testing.T, n *network.Network, a, b openflow.DatapathID) (carried *atomic.Int64) {
	t.Helper()
	left, right, carried := linked(a, b)
	connect(t, n, left, a)
	connect(t, n, right, b)
	eventually(t, "the link", func() bool { return len(n.Topology().Links) == 2 })
	n.Subscribe(func(e network.Event) {
		if t.Context().Err() != nil {
			return
		}
		switch {
		case e.Kind == network.SwitchDown && (e.Switch == a || e.Switch == b):
			t.Errorf("the session with switch %v ended", e.Switch)
		case e.Kind == network.LinkDown && (e.Link.From.Switch == a || e.Link.From.Switch == b):
			t.Errorf("the link from %v ended", e.Link.From)
		}
	})
	return carried
}

func TestSwitchOfTooManyPortsIsRefused(t *testing.T) {
	n, _ := start(t, network.Config{MaxPorts: 100})
	pair(t, n, 0xa, 0xb)
	refused := make(chan network.Event, 1)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchRefused {
			refused <- e
		}
	})
	connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 100}), 1)
	if err := fake.NewSwitch(fake.Options{DPID: 2, Ports: 101}).Dial(t.Context(), n.Addr()[0]); err != nil {
		t.Error(err)
	}
	e := <-refused
	if e.Switch != 2 || !strings.Contains(e.Reason, "more than 100 ports") || !strings.Contains(e.Reason, "openflow.max_ports") {
		t.Errorf("told of %+v", e)
	}
	if _, is := n.Switch(2); is {
		t.Error("the switch is up")
	}
}

// As many ports as OpenFlow has numbers of 16 bits, where they are allowed, come and go
// beside a link: it stays, and so do the sessions of its switches.
func TestManyPortsHarmNoLink(t *testing.T) {
	n, _ := start(t, network.Config{MaxPorts: 65535, DiscoveryInterval: time.Second, DiscoverySettle: 200 * time.Millisecond})
	carried := pair(t, n, 0xa, 0xb)
	var ports atomic.Int64
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.PortUp && e.Switch == 1 {
			ports.Add(1)
		}
	})
	stop := connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 65000}), 1)
	eventually(t, "its ports", func() bool { return ports.Load() == 65000 })
	before := carried.Load()
	eventually(t, "more probes of the link", func() bool { return carried.Load() >= before+8 })
	stop()
	down(t, n, 1)
	if got := len(n.Topology().Links); got != 2 {
		t.Errorf("%d links, want 2", got)
	}
}

// Counters of ports that a switch does not have are not kept.
func TestCountersOfPortsThatAreNotThereAreNotKept(t *testing.T) {
	n, _ := start(t, network.Config{StatsInterval: 50 * time.Millisecond})
	var reading atomic.Uint64
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 1, PortStats: func() []openflow.PortStats {
		read := openflow.Duration{Sec: uint32(reading.Add(1))}
		return []openflow.PortStats{{Port: 7, Duration: read}, {Port: 1, Duration: read}}
	}})
	connect(t, n, s, 1)
	eventually(t, "a rate of its port", func() bool {
		_, is := n.PortRate(network.PortRef{Switch: 1, Port: 1})
		return is
	})
	if _, is := n.PortRate(network.PortRef{Switch: 1, Port: 7}); is {
		t.Error("a rate is kept of a port that the switch does not have")
	}
}
