package bandwidth

import (
	"slices"
	"strings"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// Removed is told of rules that a switch has removed because they were idle: the flow
// is over. It runs on the switch's goroutine.
func (s *Service) Removed(r network.Removed) {
	id, ok := strings.CutPrefix(r.Name, "flow/")
	if !ok {
		return
	}
	s.mu.Lock()
	f := s.byID[id]
	s.mu.Unlock()
	if f != nil {
		s.start(func() { s.end(f, "it was silent") })
	}
}

// end takes a flow out: its rules, its promise, its record.
func (s *Service) end(f *flow, why string) {
	f.cancel()
	f.changing.Lock()
	defer f.changing.Unlock()
	s.mu.Lock()
	if f.ended {
		s.mu.Unlock()
		return
	}
	f.ended = true
	r := f.record()
	s.mu.Unlock()
	ctx, cancel := s.cleanUp()
	defer cancel()
	if err := s.rules.Remove(ctx, f.key()); err != nil {
		s.log.Warn("removing the rules of a flow", "flow", f.header, "error", err)
	}
	s.unpolice(ctx, f)
	s.book.Release(f.promise())
	s.guard.adjust(ctx, links(f.path))
	s.erase(ctx, f)
	// Only now may a packet begin the flow anew, under the same names.
	s.mu.Lock()
	s.forget(f)
	s.mu.Unlock()
	r.Reason = why
	s.publish("flow.ended", r)
}

// Within lists the promises to flows of which all packets are among some.
func (s *Service) Within(matches []openflow.Match) []reserve.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []reserve.Key
	for _, f := range s.flows {
		if f.within(matches) {
			out = append(out, f.promise())
		}
	}
	return out
}

func (f *flow) within(matches []openflow.Match) bool {
	exact := f.header.match(f.from.Port)
	return slices.ContainsFunc(matches, func(m openflow.Match) bool { return m.Covers(exact) })
}

// GiveWay ends the flows of which all packets are among some, because rules that win over
// theirs carry those from now on. to says whose rules they are.
func (s *Service) GiveWay(matches []openflow.Match, to string) {
	for _, f := range s.all() {
		if f.within(matches) {
			s.start(func() { s.end(f, to+" carries it") })
		}
	}
}

func sortFlows(flows []*flow) {
	slices.SortFunc(flows, func(a, b *flow) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
}
