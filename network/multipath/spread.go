package multipath

import (
	"cmp"
	"slices"
)

// places is how many buckets a group has. Open vSwitch's hash has as many values if that is a power
// of two, and no more than 64 (ofproto/ofproto-dpif.c, group_set_selection_method): beyond, it
// hashes Ethernet headers alone.
const places = 64

// Way is a link of a switch by which a destination is nearer.
type Way struct {
	Port uint32
	// Capacity is what the link carries, in bit/s; zero if that is not known. If one is not
	// known all count the same.
	Capacity uint64
	// Up is false for a link that is gone, and may come back.
	Up bool
}

// Spread is the ports of a group's buckets: none if no link is up. Each link has places in
// proportion to its capacity, and those beside them are others', so that a switch that
// goes on to the next when a port is down spreads what it had. The places of links that are gone
// are shared out among the others. What a link that is up has by itself does not depend
// on which others are. Of more links than there are places, those that are left over have none.
func Spread(ways []Way) []uint32 {
	ways = slices.Clone(ways)
	slices.SortFunc(ways, func(a, b Way) int { return cmp.Compare(a.Port, b.Port) })
	if slices.ContainsFunc(ways, func(w Way) bool { return w.Capacity == 0 }) {
		for i := range ways {
			ways[i].Capacity = 1
		}
	}
	up := slices.DeleteFunc(slices.Clone(ways), func(w Way) bool { return !w.Up })
	if len(up) == 0 {
		return nil
	}
	own, others := newTurns(ways), newTurns(up)
	out := make([]uint32, places)
	for i := range out {
		w := own.next()
		if !w.Up {
			w = others.next()
		}
		out[i] = w.Port
	}
	return out
}

// turns gives links their turn, each as often as its capacity says (smooth weighted round robin).
type turns struct {
	ways    []Way
	credits []float64
	sum     float64
}

func newTurns(ways []Way) *turns {
	t := &turns{ways: ways, credits: make([]float64, len(ways))}
	for _, w := range ways {
		t.sum += float64(w.Capacity)
	}
	return t
}

func (t *turns) next() Way {
	most := 0
	for i, w := range t.ways {
		if t.credits[i] += float64(w.Capacity); t.credits[i] > t.credits[most] {
			most = i
		}
	}
	t.credits[most] -= t.sum
	return t.ways[most]
}
