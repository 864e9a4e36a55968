package bandwidth

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/service"
)

// maxWaiting bounds the packets of a flow that wait for its placement.
const maxWaiting = 32

// Held is a packet that waits for a decision; a *network.Held.
type Held interface {
	// Release sends it through its switch's flow table.
	Release() error
	// Forward hands it to default forwarding.
	Forward() error
}

// Name implements network.Handler.
func (s *Service) Name() string { return "qos" }

// HandlePacketIn looks for first packets of critical flows. It runs on the switch's
// goroutine and never waits.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if s.copied(at.Switch, p.Cookie, &p.Headers) {
		return network.Stop
	}
	return s.packet(at, &p.Headers, func() (Held, error) { return p.Hold(holdFor) })
}

// packet decides about a packet that a switch sent up. One of a flow that has been
// placed already was on its way when the rules were written: it goes by default
// forwarding, as does every one that cannot be placed.
func (s *Service) packet(at network.PortRef, headers *packet.Headers, hold func() (Held, error)) network.Verdict {
	select {
	case <-s.ready:
	default:
		return network.Continue
	}
	definitions := s.Definitions.Items()
	if len(definitions) == 0 {
		return network.Continue
	}
	h, ok := headerOf(headers)
	if !ok {
		return network.Continue
	}
	e := s.endsOf(h, at.Switch)
	if !e.device.IsValid() && !s.net.IsEdge(at) {
		return network.Continue
	}
	h = e.normal(h)
	if v, found := s.joinKnown(h, hold); found {
		return v
	}
	// Definitions are looked through without the lock: this is done for every packet.
	d := definitionOf(definitions, match.Of(at.Port, headers))
	if d == nil {
		return network.Continue
	}
	to, known := s.net.HostByMAC(h.EthDst, h.VLAN)
	if e.device.IsValid() {
		to.At = at // where it leaves is its host's way to say
	} else if !known && !h.Dst.IsValid() || to.At == at {
		return network.Continue
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.find(h); f != nil {
		return s.join(f, hold)
	}
	if now, _ := s.Definitions.Item(d.Name); now.Value != d {
		return network.Continue // changed or removed meanwhile
	}
	return s.begin(d, h, e.device, at, to.At, hold)
}

// joinKnown decides about a packet of a flow that there is.
func (s *Service) joinKnown(h header, hold func() (Held, error)) (network.Verdict, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(h)
	if f == nil {
		return network.Continue, false
	}
	return s.join(f, hold), true
}

// find is the flow of a packet, in either direction. The lock is held.
func (s *Service) find(h header) *flow {
	if f := s.flows[h]; f != nil {
		return f
	}
	return s.flows[h.reverse()]
}

func definitionOf(definitions []service.Item[*Definition], exact openflow.Match) *Definition {
	for _, x := range definitions {
		if x.Value.selects(exact) {
			return x.Value
		}
	}
	return nil
}

// join lets a packet wait with the first one of its flow. The lock is held.
func (s *Service) join(f *flow, hold func() (Held, error)) network.Verdict {
	if f.state != StatePlacing || len(f.waiting) >= maxWaiting {
		return network.Continue
	}
	held, err := hold()
	if err != nil {
		return network.Continue
	}
	f.waiting = append(f.waiting, held)
	return network.Stop
}

// begin makes a flow of its first packet. The lock is held.
func (s *Service) begin(d *Definition, h header, device netip.Addr, from, to network.PortRef, hold func() (Held, error)) network.Verdict {
	if len(s.flows) >= maxFlows || s.placing >= maxPlacing {
		s.metrics.outcomes.WithLabelValues("refused").Inc()
		return network.Continue
	}
	held, err := hold()
	if err != nil {
		s.metrics.outcomes.WithLabelValues("refused").Inc()
		return network.Continue
	}
	f := &flow{
		id: identify(h), header: h, definition: d.Name, rate: uint64(d.Rate), reverse: d.Reverse, idle: d.Idle, once: d.Once,
		holdBack: d.ReverseRate != nil, number: s.numbers.take(0),
		from: from, to: to, device: device, since: time.Now(), state: StatePlacing, waiting: []Held{held},
	}
	f.ctx, f.cancel = context.WithCancel(s.tasks.Context())
	f.changing.Lock()
	s.flows[h], s.byID[f.id] = f, f
	s.placing++
	if !s.tasks.Start(func(context.Context) { s.place(f) }) {
		f.changing.Unlock()
		s.forget(f)
		return network.Continue
	}
	return network.Stop
}

// forget takes a flow out of the tables. The lock is held.
func (s *Service) forget(f *flow) {
	if f.state == StatePlacing {
		s.placing--
	}
	f.ended = true
	f.cancel()
	s.numbers.free(f.number)
	delete(s.flows, f.header)
	delete(s.byID, f.id)
}
