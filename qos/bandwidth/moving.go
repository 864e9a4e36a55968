package bandwidth

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// A flow of a host that moves goes where that host's own rules lead it. It has no path of
// its own: what is promised to it is promised on the host's present way between the border
// and its place, anew at each place, or it is told that it cannot be. At the border, which
// all its packets pass, it is recognised, and held to what it was promised.

// ends are the hosts of a packet, as far as they move.
type ends struct {
	// device is the one that moves, the zero address if neither does.
	device netip.Addr
	anchor network.Anchor
}

// endsOf finds out which host of a packet at a switch moves, if that is a border of it. For
// all other packets, and if both hosts move, nobody does.
func (s *Service) endsOf(h header, at openflow.DatapathID) (e ends) {
	for _, a := range []netip.Addr{h.Src, h.Dst} {
		anchor, moves := s.net.Anchored(a)
		if _, border := anchor.Border(at); !moves || !border {
			continue
		}
		if e.device.IsValid() {
			return ends{}
		}
		e = ends{a, anchor}
	}
	return e
}

// normal is the header by which a flow is known at the border: also where its host stands
// there itself, and uses another address.
func (e *ends) normal(h header) header {
	switch e.device {
	case netip.Addr{}:
	case h.Src:
		h.EthSrc = e.anchor.MAC
	case h.Dst:
		h.EthDst = e.anchor.MAC
	}
	return h
}

// roams says whether one of the flow's hosts moves.
func (f *flow) roams() bool { return f.device.IsValid() }

// way is the present way of a flow whose host moves, from where it comes in to where it
// leaves. It is false if nobody leads the host.
func (s *Service) way(f *flow) (network.Path, bool) {
	a, led := s.net.Anchored(f.device)
	if !led || len(a.Way) == 0 {
		return network.Path{}, false
	}
	hops := slices.Clone(a.Way)
	if f.device == f.header.Src {
		slices.Reverse(hops)
		for i, h := range hops {
			hops[i].In, hops[i].Out = h.Out, h.In
		}
	}
	return network.Path{Hops: hops}, true
}

// border is the hop of a way that is at the border.
func (f *flow) border(path network.Path) network.Hop {
	if f.device == f.header.Src {
		return path.Hops[len(path.Hops)-1]
	}
	return path.Hops[0]
}

// follow promises a flow what it requires on its host's present way. There is no other.
func (s *Service) follow(f *flow) (network.Path, error) {
	path, led := s.way(f)
	if !led {
		return network.Path{}, network.ErrNoPath
	}
	return path, s.book.Admit(s.promiseOf(f, path))
}

// strayed says why a flow is not where its host's way leads, or nothing.
func (s *Service) strayed(f *flow) string {
	now, led := s.way(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !led || slices.Equal(now.Hops, f.path.Hops) {
		return ""
	}
	return "its host has another way"
}

// left says whether nobody leads the flow's host any more. One that nobody has led since
// the start may yet be.
func (s *Service) left(f *flow) bool {
	_, led := s.net.Anchored(f.device)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := f.led
	f.led = was || led
	return was && !led
}

// borderProgram are the rules of a flow of a host that moves: at each border it goes on to
// the host's own rules. Where its way leads it passes the meters, and it is noticed there
// when it is over.
func (s *Service) borderProgram(f *flow, path network.Path, meter func(network.PortRef) uint32) network.Program {
	hop := f.border(path)
	borders := []openflow.DatapathID{hop.Switch}
	if a, led := s.net.Anchored(f.device); led {
		for _, at := range a.Borders {
			if !slices.Contains(borders, at.Switch) {
				borders = append(borders, at.Switch)
			}
		}
	}
	var p network.Program
	for _, d := range borders {
		add := func(h header, out uint32, idle time.Duration, flags ...uint16) {
			r := network.Rule{
				Switch: d, Stage: network.StageSelect, Offset: rule.SelectCriticalFlow, Match: h.matchIP(), Goto: rule.TableRoute,
				Idle: idle, NotifyRemoved: idle > 0,
			}
			if d == hop.Switch {
				r.Meter = meter(network.PortRef{Switch: d, Port: out})
			}
			p.Rules = append(p.Rules, r)
			if h.Proto != packet.ProtoTCP || !s.seesTCPFlags(d) {
				return
			}
			r.Offset, r.Idle, r.NotifyRemoved = rule.SelectCriticalCopy, 0, false
			r.Actions = []openflow.Action{openflow.OutputController(copyBytes)}
			for _, flag := range flags {
				r.Match = h.matchIP(openflow.TCPFlags(flag, flag))
				p.Rules = append(p.Rules, r)
			}
		}
		idle := f.idle
		if d != hop.Switch {
			idle = 0
		}
		add(f.header, hop.Out, idle, packet.SYN, packet.FIN, packet.RST)
		add(f.header.reverse(), hop.In, 0, packet.FIN, packet.RST)
	}
	return p
}

// borderPunts are the rules that bring the first packets of critical traffic of hosts that
// move up, at the borders that they pass: before the rules that lead them.
func borderPunts(d openflow.DatapathID, definitions []*Definition, m network.Moving) (rules []network.Rule) {
	if !slices.ContainsFunc(m.Borders, func(at network.PortRef) bool { return at.Switch == d }) {
		return nil
	}
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, match := range def.Matches {
			for _, p := range m.Prefixes {
				for _, of := range []openflow.OXM{openflow.IPSrcPrefix(p), openflow.IPDstPrefix(p)} {
					narrow, ok := narrowed(match, of)
					if !ok || seen[narrow] {
						continue
					}
					seen[narrow] = true
					rules = append(rules, network.Rule{
						Switch: d, Stage: network.StageSelect, Offset: rule.SelectCriticalAsk, Match: narrow, Leased: true,
						Actions: []openflow.Action{openflow.OutputController(wholePacket)},
					})
				}
			}
		}
	}
	return rules
}

// narrowed is a match of those packets only that have an IPv4 address of a prefix; false if
// there are none.
func narrowed(m openflow.Match, prefix openflow.OXM) (openflow.Match, bool) {
	only := openflow.MustMatch(openflow.EthType(packet.TypeIPv4), prefix)
	if !m.Overlaps(only) {
		return m, false
	}
	if only.Covers(m) {
		return m, true
	}
	var fields []openflow.OXM
	for o := range m.Fields() {
		if o.Field != openflow.FieldEthType && o.Field != prefix.Field && o.Field != openflow.FieldInPort {
			fields = append(fields, o)
		}
	}
	n, err := openflow.NewMatch(append(fields, openflow.EthType(packet.TypeIPv4), prefix)...)
	return n, err == nil
}

// askAtBorders has the rules for first packets follow the hosts that may move.
func (s *Service) askAtBorders(ctx context.Context) {
	now := s.net.Moving()
	s.mu.Lock()
	same := slices.Equal(now.Prefixes, s.asked.Prefixes) && slices.Equal(now.Borders, s.asked.Borders)
	s.mu.Unlock()
	if !same {
		s.applyPunts(ctx)
	}
}
