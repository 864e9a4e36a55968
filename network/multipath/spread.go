package multipath

import (
	"cmp"
	"slices"
)

// buckets is the number of buckets of a group. Open vSwitch's hash has as many values if the
// number is a power of two and at most 64 (ofproto/ofproto-dpif.c, group_set_selection_method):
// beyond that, it hashes Ethernet headers only.
const buckets = 64

// NextHop is a link of a switch on which packets come closer to a destination.
type NextHop struct {
	Port uint32
	// Capacity is the link's capacity in bit/s, zero if unknown. If one is unknown, all count
	// the same.
	Capacity uint64
	// Up is false for a link that is gone and may come back.
	Up bool
}

// Spread returns the ports of a group's buckets, none if no link is up. Each link has buckets in
// proportion to its capacity. Neighbouring buckets belong to different links, so that a switch
// which uses the next bucket when a port is down spreads the packets of that port. The buckets
// of links that are gone are shared among the links that are up. Apart from shared buckets, the
// buckets of a link do not depend on which other links are up. If there are more links than buckets,
// the remaining links have none.
func Spread(hops []NextHop) []uint32 {
	hops = slices.Clone(hops)
	slices.SortFunc(hops, func(a, b NextHop) int { return cmp.Compare(a.Port, b.Port) })
	if slices.ContainsFunc(hops, func(w NextHop) bool { return w.Capacity == 0 }) {
		for i := range hops {
			hops[i].Capacity = 1
		}
	}
	up := slices.DeleteFunc(slices.Clone(hops), func(w NextHop) bool { return !w.Up })
	if len(up) == 0 {
		return nil
	}
	own, others := newWeightedRoundRobin(hops), newWeightedRoundRobin(up)
	out := make([]uint32, buckets)
	for i := range out {
		w := own.next()
		if !w.Up {
			w = others.next()
		}
		out[i] = w.Port
	}
	return out
}

// weightedRoundRobin returns links in turn, each as often as its capacity requires (smooth
// weighted round robin).
type weightedRoundRobin struct {
	hops    []NextHop
	credits []float64
	sum     float64
}

func newWeightedRoundRobin(hops []NextHop) *weightedRoundRobin {
	t := &weightedRoundRobin{hops: hops, credits: make([]float64, len(hops))}
	for _, w := range hops {
		t.sum += float64(w.Capacity)
	}
	return t
}

func (t *weightedRoundRobin) next() NextHop {
	most := 0
	for i, w := range t.hops {
		if t.credits[i] += float64(w.Capacity); t.credits[i] > t.credits[most] {
			most = i
		}
	}
	t.credits[most] -= t.sum
	return t.hops[most]
}
