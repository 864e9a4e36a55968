package mobilityfirst

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// maxRetryPlaces limits the places that a request is sent to if it is repeated, or if its name
// cannot have another path.
const maxRetryPlaces = 4

// maxCostedPlaces limits the places for which the cost of a path is computed.
const maxCostedPlaces = 16

// choose selects the places to which a request for a name is sent. others holds further places of
// the name, which get the request if no path to the selected ones is possible.
//
// Usually choose selects one place: the one to which the host has a path already or, if there is
// none yet, the best one (fitness.go). The cost of a place is the number of paths that end there
// plus the number of switches on the route to it. A host that repeats a request, or asks for
// another path beside the one that it has, has received no answer. Its request goes to all places,
// or to some if there are many. With several paths per name (multihoming), spread selects the
// places. With multicast all places are selected.
func (s *Service) choose(src endpoint, x *message, places []place) (to, others []endpoint) {
	for _, at := range places {
		if at.isApart(src.place) {
			to = append(to, endpoint{x.request.Destination, at})
		}
	}
	if len(to) < 2 || x.request.Service&frame.Multicast != 0 {
		return to, nil
	}
	current, retried, room := s.paths.current(src, to, x.request.ID)
	if current > 0 {
		to[0], to[current], current = to[current], to[0], 0 // the existing path stays among the selected if there are many
	}
	switch {
	case !retried && x.request.Service&frame.Multihoming != 0:
		slices.SortFunc(to[current+1:], endpoint.compare) // the same places are selected each time if there are many
		to = s.withoutDraining(to, current)
		return s.spread(src, to[:min(len(to), maxCostedPlaces)]), nil
	case retried || current >= 0 && !x.repeated || current < 0 && !room:
		chosen := s.withoutDraining(to, current)
		return chosen[:min(len(chosen), maxRetryPlaces)], nil
	case current < 0:
		var all []fitness
		to, all = s.rank(to, current)
		current = best(s.candidates(src, to[:min(len(to), maxCostedPlaces)], all))
	}
	others = slices.Delete(slices.Clone(to), current, current+1)
	return to[current : current+1], others[:min(len(others), maxRetryPlaces-1)]
}

// isApart reports whether a path from another place is possible. Hosts at the same port, or with the
// same Ethernet address, receive each other's broadcasts.
func (p place) isApart(other place) bool { return p.At != other.At && p.MAC != other.MAC }

// withoutDraining ranks the places as rank does, and leaves out those of draining nodes if there
// are others.
func (s *Service) withoutDraining(to []endpoint, current int) (rest []endpoint) {
	to, all := s.rank(to, current)
	for _, i := range notDraining(all, current) {
		rest = append(rest, to[i])
	}
	return rest
}

// rank sorts places by the standing of the nodes there, from fit to silent (fitness.go), and
// returns their fitness as well. If current is 0, the first place is the one to which the host
// already has a path, and it stays the first; current is -1 if there is no such place. Places of
// equal standing keep their order.
func (s *Service) rank(to []endpoint, current int) ([]endpoint, []fitness) {
	type rankedPlace struct {
		endpoint
		fitness
	}
	all := make([]rankedPlace, len(to))
	for i, e := range to {
		all[i] = rankedPlace{e, s.nodes.fitness(e.name, e.place)}
	}
	slices.SortStableFunc(all[current+1:], func(a, b rankedPlace) int { return cmp.Compare(a.standing, b.standing) })
	places, fitnesses := make([]endpoint, len(to)), make([]fitness, len(to))
	for i, c := range all {
		places[i], fitnesses[i] = c.endpoint, c.fitness
	}
	return places, fitnesses
}

// candidates returns the cost and fitness of each place.
func (s *Service) candidates(src endpoint, to []endpoint, fitnesses []fitness) []candidate {
	all := make([]candidate, len(to))
	for i, e := range to {
		all[i] = candidate{s.cost(src, e), fitnesses[i]}
	}
	return all
}

// current returns the index of the endpoint to which src has a path, the oldest one if there are
// several, or -1. retried reports whether one of these paths was requested by the same request, and
// room whether another path may be opened.
func (x *paths) current(src endpoint, to []endpoint, request uint64) (current int, retried, room bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	current = -1
	var oldest *path
	for i, e := range to {
		p := x.byEnds[pairOf(src, e)]
		if p == nil {
			continue
		}
		if *p.lastRequest(src) == request {
			retried = true
		}
		if oldest == nil || p.id < oldest.id {
			current, oldest = i, p
		}
	}
	return current, retried, x.flows.Room(src.At) == nil
}

// exists reports whether there is a path between two endpoints, or one is being set up.
func (x *paths) exists(a, b endpoint) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byEnds[pairOf(a, b)] != nil
}

// cost returns the cost of a path to an endpoint, to compare it with other endpoints of the same
// name.
func (s *Service) cost(src, to endpoint) int {
	route, ok := s.Network.Topology().Path(src.At, to.At, s.Metric)
	if !ok {
		return math.MaxInt
	}
	s.paths.mu.Lock()
	defer s.paths.mu.Unlock()
	return len(route.Hops) + s.paths.pathsAt[to]
}

// spread selects the places of a name to which a request is sent when chunks may use several paths.
// src is one place of the requesting host, and to holds the places of the name. The requests from
// all places of the host together give each place of both names at least one path, and as few
// places as possible more than one. If a name has several hosts, the requesting host adds only
// paths to the host that has answered first.
func (s *Service) spread(src endpoint, to []endpoint) []endpoint {
	to = slices.DeleteFunc(to, func(e endpoint) bool {
		if s.paths.exists(src, e) {
			return false
		}
		_, ok := s.Network.Topology().Path(src.At, e.At, s.Metric)
		return !ok
	})
	slices.SortFunc(to, endpoint.compare)
	own := s.names.interfaces(src)
	slices.SortFunc(own, endpoint.compare)
	i := slices.Index(own, src)
	switch {
	case i < 0 || len(to) < 2:
		return to
	case len(to) < len(own):
		return to[i%len(to):][:1]
	}
	var mine []endpoint
	for ; i < len(to); i += len(own) {
		mine = append(mine, to[i])
	}
	return mine
}
