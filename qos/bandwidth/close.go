package bandwidth

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Sides of a TCP connection that have said that they send no more.
const (
	closedThere = 1 << iota // who began it
	closedBack
	closedBoth = closedThere | closedBack
)

// copyBytes is how much of a copied segment comes up: its headers.
const copyBytes = 128

// copies are rules that show how a TCP connection ends: segments that close it go on as
// the others do, and the controller gets a copy. So it does of one that opens a
// connection, for an application may use the same ports again. can tells whether a
// switch matches TCP's flags; where it does not, a flow is over when it has been silent.
func copies(h header, path network.Path, meter func(network.PortRef) uint32, can func(openflow.DatapathID) bool) []network.Rule {
	if h.Proto != packet.ProtoTCP {
		return nil
	}
	first, last := path.Hops[0], path.Hops[len(path.Hops)-1]
	back := network.Hop{Switch: last.Switch, In: last.Out, Out: last.In}
	var out []network.Rule
	add := func(h header, hop network.Hop, flags ...uint16) {
		if !can(hop.Switch) {
			return
		}
		for _, f := range flags {
			out = append(out, network.Rule{
				Switch: hop.Switch, Stage: network.StageWay, Offset: rule.WayCriticalCopy, Match: h.match(hop.In, openflow.TCPFlags(f, f)),
				Actions: []openflow.Action{openflow.Output(hop.Output()), openflow.OutputController(copyBytes)},
				Meter:   meter(network.PortRef{Switch: hop.Switch, Port: hop.Out}),
			})
		}
	}
	add(h, first, packet.SYN, packet.FIN, packet.RST)
	add(h.reverse(), back, packet.FIN, packet.RST)
	return out
}

// seesTCPFlags says whether a switch's rules can match TCP's flags. One that is not
// connected is taken to be able to: its rules were once accepted.
func (s *Service) seesTCPFlags(d openflow.DatapathID) bool {
	can, known := s.net.CanMatch(d, openflow.FieldTCPFlags)
	return can || !known
}

// copied takes the copy of a segment, and says whether it was one: then the segment
// itself has gone its way already.
func (s *Service) copied(at openflow.DatapathID, cookie uint64, headers *packet.Headers) bool {
	if headers.TCPFlags&(packet.SYN|packet.FIN|packet.RST) == 0 {
		return false
	}
	h, ok := headerOf(headers)
	if !ok {
		return false
	}
	e := s.endsOf(h, at)
	h = e.normal(h)
	s.mu.Lock()
	f := s.find(h)
	s.mu.Unlock()
	if f == nil || !slices.ContainsFunc(s.rules.Rules(f.key()), func(r network.InstalledRule) bool {
		return uint64(r.Cookie) == cookie && isCopy(&r.Rule)
	}) {
		return false
	}
	s.note(f, h == f.header, headers.TCPFlags)
	return true
}

// isCopy says whether a rule gives the controller copies.
func isCopy(r *network.Rule) bool {
	return r.Stage == network.StageWay && r.Offset == rule.WayCriticalCopy || r.Stage == network.StageSelect && r.Offset == rule.SelectCriticalCopy
}

// note notes what a segment says of its connection.
func (s *Service) note(f *flow, there bool, flags uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case flags&packet.SYN != 0:
		if f.closed == closedBoth {
			f.closed = 0
			s.start(func() { s.reopen(f) })
		}
		return
	case f.closed == closedBoth:
		return
	case flags&packet.RST != 0:
		f.closed = closedBoth
	case there:
		f.closed |= closedThere
	default:
		f.closed |= closedBack
	}
	if f.closed == closedBoth {
		s.start(func() { s.giveBack(f) })
	}
}

// isClosed says whether both sides have ended the flow's connection.
func (s *Service) isClosed(f *flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.closed == closedBoth
}

// giveBack takes back what a flow was promised whose connection has been closed. Its
// rules stay until it has been silent: the last segments are still on their way, and
// must not begin it anew.
func (s *Service) giveBack(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	s.mu.Lock()
	promised := f.closed == closedBoth && !f.ended && f.state == StateAccepted
	path := f.path
	s.mu.Unlock()
	if !promised {
		return
	}
	// What is still measured of it is nobody's, and free for others.
	s.book.Restore(yielding(f, path))
	ctx, cancel := s.cleanUp()
	defer cancel()
	s.guard.adjust(ctx, links(path))
}

// reopen decides anew about a flow whose connection was closed and is opened again.
func (s *Service) reopen(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	ctx, cancel := s.cleanUp()
	defer cancel()
	if old, p, err := s.choosePath(f); err == nil {
		s.move(ctx, f, old, p, "its connection has been opened again")
	}
}
