package mobilityfirst

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// maxAgain is to how many places a request is led that comes again, or to the one of which there can be no path.
const maxAgain = 4

// maxConsidered is of how many places it is found out what the way there costs.
const maxConsidered = 16

// choose is to which places of a name a request goes, and which others are asked if there can be no path there. If the name is at several, it is the one to
// which whoever asks has a path already; if there is none yet, the best (fitness.go). What a way costs are the paths that end there
// and the switches on the way, each of which counts one. Who asks once more for the same, or looks for another way than the one
// that it has, has heard nothing from there: then it is all, or some of many. Where chunks may go by several ways, spread says to which; where they go to all hosts that have the name, it
// is all.
func (s *Service) choose(who end, x *said, places []place) (to, others []end) {
	for _, at := range places {
		if at.At != who.At && at.MAC != who.MAC { // or they hear each other
			to = append(to, end{x.request.Destination, at})
		}
	}
	if len(to) < 2 || x.request.Service&frame.Multicast != 0 {
		return to, nil
	}
	led, again, room := s.paths.led(who, to, x.request.ID)
	if led > 0 {
		to[0], to[led], led = to[led], to[0], 0 // what is there is among few of many
	}
	switch {
	case !again && x.request.Service&frame.Multihoming != 0:
		slices.SortFunc(to[led+1:], end.compare) // few of many are the same each time
		to = s.spare(to, led)
		return s.spread(who, to[:min(len(to), maxConsidered)]), nil
	case again || led >= 0 && !x.known || led < 0 && !room:
		some := s.spare(to, led)
		return some[:min(len(some), maxAgain)], nil
	case led < 0:
		var all []fitness
		to, all = s.ranked(to, led)
		led = best(s.options(who, to[:min(len(to), maxConsidered)], all))
	}
	others = slices.Delete(slices.Clone(to), led, led+1)
	return to[led : led+1], others[:min(len(others), maxAgain-1)]
}

// spare leaves out places that drain where others are, and ranks the rest.
func (s *Service) spare(to []end, led int) (some []end) {
	to, all := s.ranked(to, led)
	for _, i := range spared(all, led) {
		some = append(some, to[i])
	}
	return some
}

// ranked puts places in the order of their standing, but for the one to which whoever asks is led already: it stays the first
// (led is 0, or -1 for none). Those that stand alike stay in their order.
func (s *Service) ranked(to []end, led int) ([]end, []fitness) {
	type candidate struct {
		end
		fitness
	}
	all := make([]candidate, len(to))
	for i, e := range to {
		all[i] = candidate{e, s.nodes.fitness(e.name, e.place)}
	}
	slices.SortStableFunc(all[led+1:], func(a, b candidate) int { return cmp.Compare(a.standing, b.standing) })
	places, how := make([]end, len(to)), make([]fitness, len(to))
	for i, c := range all {
		places[i], how[i] = c.end, c.fitness
	}
	return places, how
}

// options are places to which somebody may be led, by how well each is suited.
func (s *Service) options(who end, to []end, how []fitness) []option {
	all := make([]option, len(to))
	for i, e := range to {
		all[i] = option{s.cost(who, e), how[i]}
	}
	return all
}

// led is to which of some places somebody has a path, the oldest if there are several; -1 for none. It says whether one of them
// was asked for by the same request, and whether there is room for another.
func (x *paths) led(who end, to []end, request uint64) (led int, again, room bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	led = -1
	var oldest *path
	for i, e := range to {
		p := x.of[endsOf(who, e)]
		if p == nil {
			continue
		}
		if p.asked[who] == request {
			again = true
		}
		if oldest == nil || p.id < oldest.id {
			led, oldest = i, p
		}
	}
	return led, again, x.room(who.At) == nil
}

// there says whether there is a path between two ends, or one is being made.
func (x *paths) there(a, b end) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of[endsOf(a, b)] != nil
}

// cost is what a way to a place costs, beside others to the same name.
func (s *Service) cost(who, to end) int {
	route, is := s.Network.Topology().Path(who.At, to.At, s.Metric)
	if !is {
		return math.MaxInt
	}
	s.paths.mu.Lock()
	defer s.paths.mu.Unlock()
	return len(route.Hops) + s.paths.ending[to]
}
