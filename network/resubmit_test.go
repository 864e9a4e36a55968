package network_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// again sends every SYN through the tables again and tells what came of it. What
// overtaken does comes between the packet's rise and that.
type again struct {
	overtaken func()
	outcome   chan error
}

func (*again) Name() string { return "again" }

func (a *again) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.IsSYN() {
		return network.Continue
	}
	a.overtaken()
	a.outcome <- p.Resubmit()
	return network.Stop
}

// A packet that an old decision sent up goes by the rule that is there now; one
// for which there is none comes up once more, and not for ever.
func TestResubmit(t *testing.T) {
	a := &again{overtaken: func() {}, outcome: make(chan error, 1000)}
	n, _ := start(t, network.Config{}, func(n *network.Network) { n.AddHandler(500, a) })
	left := make(chan []byte, 1)
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: func(port uint32, frame []byte) {
		if port == 3 && packet.TypeIPv4 == int(frame[12])<<8|int(frame[13]) {
			left <- bytes.Clone(frame)
		}
	}})
	connect(t, n, s, 1)
	edges(t, n, 1, 3)
	next := func(what string, want error) {
		t.Helper()
		select {
		case err := <-a.outcome:
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", what, err, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the packet did not come up", what)
		}
	}
	for port := range uint32(2) {
		receive(t, s, 1+port, frame(1, 2))
		for range 64 {
			next("a stray that the tables send up again and again", nil)
		}
		next("the stray in the end", network.ErrResubmitted)
	}

	m := openflow.NewFlowMod(openflow.FlowAdd, 0, 60000, openflow.MustMatch(openflow.InPort(1)), openflow.ApplyActions(openflow.Output(3)))
	a.overtaken = func() {
		if _, e := s.Table().Flow(m); e != nil {
			t.Error(e)
		}
	}
	receive(t, s, 1, frame(1, 3))
	next("a packet that a rule has overtaken", nil)
	select {
	case got := <-left:
		if !bytes.Equal(got, frame(1, 3)) {
			t.Errorf("left as %x", got)
		}
	case <-time.After(patience):
		t.Fatal("the packet did not leave by the new rule")
	}
}
