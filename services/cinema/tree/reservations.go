package tree

import (
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Reservations holds the trees of all channels, and what they reserve of each link. It is safe
// for concurrent use.
type Reservations struct {
	share    float64
	capacity func(network.PortRef) uint64

	mu        sync.Mutex
	byChannel map[string]reservation
	taken     map[network.PortRef]uint64 // by the port from which the link leaves, in bit/s
}

type reservation struct {
	rate uint64
	tree Tree
}

// NewReservations returns Reservations without trees. Channels may take a share, from 0 to 1,
// of a link's capacity, which capacity returns in bit/s for the port from which the link
// leaves; zero means that it is not known.
func NewReservations(share float64, capacity func(network.PortRef) uint64) *Reservations {
	return &Reservations{share: share, capacity: capacity, byChannel: map[string]reservation{}, taken: map[network.PortRef]uint64{}}
}

// Grow changes the tree of a channel to what is wanted, within the room that all others leave;
// see the function Grow.
func (r *Reservations) Grow(channel string, top *network.Topology, w Want) (Tree, map[openflow.DatapathID]error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.byChannel[channel].tree
	r.release(channel)
	t, refused := Grow(top, old, w, r.room)
	r.reserve(channel, w.Rate, t)
	return t, refused
}

// Shorter gives a channel a tree with fewer links that reaches all that is wanted, if there is
// one to which it can move without packets arriving twice. It returns the channel's tree, and
// reports whether that has changed.
func (r *Reservations) Shorter(channel string, top *network.Topology, w Want) (Tree, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current, ok := r.byChannel[channel]
	if !ok {
		return Tree{}, false
	}
	r.release(channel)
	t, refused := Grow(top, Tree{}, w, r.room)
	if len(refused) > 0 || len(t.Edges) >= len(current.tree.Edges) || HasLoop(current.tree, t) || t.Duplicates(current.tree) {
		r.reserve(channel, current.rate, current.tree)
		return current.tree, false
	}
	r.reserve(channel, w.Rate, t)
	return t, true
}

// RoomForDouble reports whether links have room for twice what channels reserve of them.
func (r *Reservations) RoomForDouble(edges []Edge) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(edges, func(e Edge) bool {
		left, all := r.room(e.From)
		return all != 0 && left < r.taken[e.From]
	})
}

// Restore sets the tree that a channel had before a restart.
func (r *Reservations) Restore(channel string, rate uint64, t Tree) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(channel)
	r.reserve(channel, rate, t)
}

// Release removes the tree of a channel.
func (r *Reservations) Release(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(channel)
}

// Load is what channels reserve of a link, and the most that they may, in bit/s. Most is zero
// if the link's capacity is not known: channels may then take all of it.
type Load struct {
	Channels    int
	Taken, Most uint64
}

// Loads returns the loads of links, in the same order.
func (r *Reservations) Loads(links []network.Link) []Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	channels := map[network.PortRef]int{}
	for _, h := range r.byChannel {
		for _, e := range h.tree.Edges {
			channels[e.From]++
		}
	}
	out := make([]Load, len(links))
	for i, l := range links {
		_, most := r.room(l.From)
		out[i] = Load{channels[l.From], r.taken[l.From], most}
	}
	return out
}

// room returns what is left of a link; r.mu is held.
func (r *Reservations) room(from network.PortRef) (left, all uint64) {
	all = uint64(float64(r.capacity(from)) * r.share)
	return all - min(all, r.taken[from]), all
}

// release removes a channel's reservation, and reserve adds one; r.mu is held.
func (r *Reservations) release(channel string) {
	h := r.byChannel[channel]
	for _, e := range h.tree.Edges {
		if r.taken[e.From] -= h.rate; r.taken[e.From] == 0 {
			delete(r.taken, e.From)
		}
	}
	delete(r.byChannel, channel)
}

func (r *Reservations) reserve(channel string, rate uint64, t Tree) {
	r.byChannel[channel] = reservation{rate, t}
	for _, e := range t.Edges {
		r.taken[e.From] += rate
	}
}
