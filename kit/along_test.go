package kit_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// class promises queue 5 at one port to what goes to an address.
type class struct {
	to      openflow.OXM
	at      network.PortRef
	carried []network.Carried
}

func (c *class) Loaded() <-chan struct{} { return nil }
func (c *class) Carry(all []network.Carried) {
	c.carried = append(c.carried, all...)
}

func (c *class) Treatment(m openflow.Match) (network.Treatment, bool) {
	to, _ := m.Get(openflow.FieldIPv4Dst)
	return network.Treatment{Name: "gold"}, to == c.to
}

func (c *class) Queue(x network.Carried) uint32 {
	if x.At == c.at && x.Treatment == "gold" {
		return 5
	}
	return 0
}

// TestAlong checks that packets follow a path as the first switch has rewritten them, in the queues
// that were promised to the original packets, and that answers return.
func TestAlong(t *testing.T) {
	virtual, server := openflow.IPDst(netip.MustParseAddr("10.9.9.9")), openflow.IPDst(netip.MustParseAddr("10.0.0.2"))
	promise := &class{to: virtual, at: network.PortRef{Switch: 2, Port: 2}}
	var treatments network.Treatments
	treatments.Promise(promise)
	hops := []network.Hop{{Switch: 1, In: 1, Out: 2}, {Switch: 2, In: 1, Out: 2}, {Switch: 3, In: 1, Out: 1}}
	there := kit.Along{
		Hops: hops, Stage: network.StageSelect, Idle: time.Minute, Match: openflow.MustMatch(openflow.EthType(0x0800), virtual),
		Set: []openflow.OXM{server}, Treatments: &treatments,
	}
	rules, err := there.Rules()
	if err != nil {
		t.Fatal(err)
	}
	packet := fake.NewPacket(openflow.EthType(0x0800), virtual)
	for i, want := range []fake.Output{{Port: 2}, {Port: 2, Queue: 5}, {Port: openflow.PortInPort}} {
		table := fake.NewFlowTable(nil)
		if err := table.Install(hops[i].Switch, network.Program{Rules: rules}); err != nil {
			t.Fatal(err)
		}
		got := table.Send(hops[i].In, packet)
		if len(got.Outputs) != 1 || got.Outputs[0].Port != want.Port || got.Outputs[0].Queue != want.Queue {
			t.Fatalf("switch %v: %+v: %s", hops[i].Switch, got.Outputs, got.Why)
		}
		packet = got.Outputs[0].Packet
		if to, _ := packet.Get(openflow.FieldIPv4Dst); to != server {
			t.Errorf("switch %v sends it to %v", hops[i].Switch, to)
		}
		if wrong := table.Send(7, packet); len(wrong.Outputs) != 0 {
			t.Errorf("switch %v takes it by any port", hops[i].Switch)
		}
	}
	if n := slices.IndexFunc(rules, func(r network.Rule) bool { return r.Idle > 0 && r.NotifyRemoved }); n != 2 || rules[2].Switch != 1 {
		t.Errorf("rule %d has the timeout", n)
	}
	if len(promise.carried) != 3 {
		t.Errorf("the ports in use: %v", promise.carried)
	}
	back := kit.Along{Hops: kit.Reversed(hops), Stage: network.StageSelect, Match: openflow.MustMatch(openflow.EthType(0x0800))}
	if rules, err = back.Rules(); err != nil || len(rules) != 3 || rules[0].Switch != 1 {
		t.Errorf("answers: %v, %v", rules, err)
	}
	if _, err := (kit.Along{Stage: network.StageSelect}).Rules(); !errors.Is(err, network.ErrNoPath) {
		t.Errorf("without a path: %v", err)
	}
	there.Set = []openflow.OXM{openflow.TCPDst(80)} // without a protocol
	if _, err := there.Rules(); err == nil {
		t.Error("what no packet can be is led")
	}
}
