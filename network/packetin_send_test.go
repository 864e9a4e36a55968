package network_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
)

// elsewhere is a handler that sends every SYN out of another switch's port.
type elsewhere struct {
	to   network.PortRef
	done chan error
}

func (*elsewhere) Name() string { return "elsewhere" }

func (e *elsewhere) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.IsSYN() {
		return network.Continue
	}
	e.done <- p.Send(e.to, p.Data)
	return network.Stop
}

// TestHandlerSends checks that a frame which a handler sends leaves by the given port, at another
// switch and at its own, and that sending fails for a switch that is not connected.
func TestHandlerSends(t *testing.T) {
	e := &elsewhere{done: make(chan error, 1)}
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { n.AddHandler(500, e) })
	left := map[network.PortRef]chan []byte{}
	var first *fake.Switch
	for _, at := range []network.PortRef{{Switch: 1, Port: 2}, {Switch: 2, Port: 1}} {
		came := make(chan []byte, 1)
		left[at] = came
		s := fake.NewSwitch(fake.Options{DPID: at.Switch, Ports: 2, OnOutput: func(port uint32, frame []byte) {
			if port == at.Port && packet.TypeIPv4 == int(frame[12])<<8|int(frame[13]) {
				came <- bytes.Clone(frame)
			}
		}})
		networktest.Connect(t, n, s, at.Switch)
		networktest.Edges(t, n, at.Switch, 2)
		if first == nil {
			first = s
		}
	}
	for at, came := range left {
		e.to = at
		receive(t, first, 1, networktest.Frame(1, 2))
		if err := <-e.done; err != nil {
			t.Errorf("sending to %v: %v", at, err)
		}
		wantLeft(t, came, networktest.Frame(1, 2))
	}
	e.to = network.PortRef{Switch: 3, Port: 1}
	receive(t, first, 1, networktest.Frame(1, 2))
	if err := <-e.done; !errors.Is(err, network.ErrSwitchDown) {
		t.Errorf("to a switch that is not there: %v", err)
	}
}
