package cinema

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// promiser promises queue 3 to the packets of channel a to one address, wherever it is told
// that they go.
type promiser struct {
	to     netip.Addr
	loaded chan struct{}

	mu      sync.Mutex
	carried map[network.PortRef]bool
}

func (p *promiser) Loaded() <-chan struct{} { return p.loaded }

func (p *promiser) Treatment(m openflow.Match) (network.Treatment, bool) {
	of := openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(17), openflow.IPSrc(studioAddr), openflow.IPDst(p.to), openflow.UDPSrc(20001))
	return network.Treatment{Name: "gold"}, m.Overlaps(of)
}

func (p *promiser) Queue(c network.Carried) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Treatment == "gold" && p.carried[c.At] {
		return 3
	}
	return 0
}

func (p *promiser) Carry(all []network.Carried) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		p.carried[c.At] = !c.Between
	}
}

// queues returns the queues in which a channel leaves, by the ports in its rules and buckets.
func (b *harness) queues(channel string) map[network.PortRef]uint32 {
	out, p := map[network.PortRef]uint32{}, b.ledger.Program(channel)
	note := func(d openflow.DatapathID, actions []openflow.Action) {
		queue := uint32(0)
		for _, a := range actions {
			switch a.Type {
			case openflow.ActionSetQueue:
				queue = a.Arg
			case openflow.ActionOutput:
				out[port(d, a.Arg)] = queue
			}
		}
	}
	for _, r := range p.Rules {
		note(r.Switch, r.Actions)
	}
	for _, g := range p.Groups {
		for _, x := range g.Buckets {
			note(g.Switch, x.Actions)
		}
	}
	return out
}

// TestChannelIsTreated checks that a channel's packets to one gateway get the promised queue as
// soon as the promising service knows their path, and that packets to another gateway get none.
func TestChannelIsTreated(t *testing.T) {
	b := newBench(t)
	p := &promiser{to: eastAddr, loaded: make(chan struct{}), carried: map[network.PortRef]bool{}}
	close(p.loaded)
	b.treatments.Promise(p)
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.west, 2, 6000, "a")
	b.mustWant(b.east, 3, 6001, "b")
	b.treatments.Changed()
	want := map[network.PortRef]uint32{port(1, 2): 3, port(2, edge): 3, port(1, 3): 0, port(3, edge): 0}
	b.eventually("the channel has its queues", func() bool {
		got := b.queues("a")
		return len(got) == len(want) && !slices.ContainsFunc([]network.PortRef{port(1, 2), port(2, edge), port(1, 3), port(3, edge)}, func(at network.PortRef) bool {
			return got[at] != want[at]
		})
	})
	for at, queue := range b.queues("b") {
		if queue != 0 {
			t.Errorf("channel b, to which nothing is promised, leaves by %v in queue %d", at, queue)
		}
	}
	// If the path to the other gateway is also over switch 2, their common link carries the
	// packets once, in the queue of the first.
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{1, 3}))
	b.service.NetworkChanged(network.Event{Kind: network.LinkDown})
	b.eventually("it goes round", func() bool {
		got := b.queues("a")
		return got[port(1, 2)] == 3 && got[port(2, edge)] == 3 && got[port(2, 3)] == 0 && got[port(3, edge)] == 0 && len(got) == 4
	})
}
