package tree

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network"
)

// Reservations holds the trees of all channels, and the bandwidth that they reserve of each link. It is
// safe for concurrent use.
type Reservations struct {
	share    float64
	capacity func(network.PortRef) uint64

	mu        sync.Mutex
	byChannel map[string]reservation
	// taken holds what channels reserve, in bit/s, by the port from which the link leaves. Views
	// share the map, so a change replaces it.
	taken map[network.PortRef]uint64
}

type reservation struct {
	rate uint64
	tree Tree
}

// has reports whether the reservation includes the link that leaves by a port.
func (r *reservation) has(from network.PortRef) bool {
	return slices.ContainsFunc(r.tree.Edges, func(e Edge) bool { return e.From == from })
}

// NewReservations returns Reservations without trees. Channels may take a share, from 0 to 1,
// of a link's capacity, which capacity returns in bit/s for the port from which the link
// leaves; zero means that it is not known.
func NewReservations(share float64, capacity func(network.PortRef) uint64) *Reservations {
	return &Reservations{share: share, capacity: capacity, byChannel: map[string]reservation{}, taken: map[network.PortRef]uint64{}}
}

// View returns the channel's present reservation and the room that it has now.
func (r *Reservations) View(channel string) View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return View{channel: channel, all: r.most, taken: r.taken, own: r.byChannel[channel]}
}

// View is the reservation that a channel had at one time, and the room that all others left it then. A
// View does not change, so that a tree can be planned from it.
type View struct {
	channel string
	all     func(network.PortRef) uint64
	taken   map[network.PortRef]uint64
	own     reservation
}

// Tree returns the tree that the channel had reserved.
func (v *View) Tree() Tree { return v.own.tree }

// Room returns the room for the channel, in which the channel's own reservation counts as free. As a
// method value it is a function of type Room.
func (v *View) Room(from network.PortRef) (left, all uint64) {
	all, taken := v.all(from), v.taken[from]
	if v.own.has(from) {
		taken -= v.own.rate
	}
	return all - min(all, taken), all
}

// RoomForDouble reports whether each of the given links has room for twice the bit rate that all
// channels reserve of it, if the channel reserves rate along tree t instead of its present tree.
func (v *View) RoomForDouble(t Tree, rate uint64, edges []Edge) bool {
	next := reservation{rate, t}
	return !slices.ContainsFunc(edges, func(e Edge) bool {
		left, all := v.Room(e.From)
		taken := v.taken[e.From]
		if v.own.has(e.From) {
			taken -= v.own.rate
		}
		if next.has(e.From) {
			left, taken = left-min(left, rate), taken+rate
		}
		return all != 0 && left < taken
	})
}

// ErrRoomTaken says that a link has no room any more, because another channel has reserved it since the
// view was made.
var ErrRoomTaken = errors.New("another channel has just reserved it")

// Reserve replaces the channel's reservation by rate along tree t, which was planned from view v. If a
// link had room in the view and has none any more, it changes nothing and returns an error that wraps
// ErrRoomTaken.
func (r *Reservations) Reserve(v View, rate uint64, t Tree) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := View{channel: v.channel, all: r.most, taken: r.taken, own: r.byChannel[v.channel]}
	for _, e := range t.Edges {
		if Room(v.Room).has(e, rate) && !Room(now.Room).has(e, rate) {
			return fmt.Errorf("link %v: %w", e.From, ErrRoomTaken)
		}
	}
	r.set(v.channel, reservation{rate, t})
	return nil
}

// Restore sets the tree that a channel had before a restart.
func (r *Reservations) Restore(channel string, rate uint64, t Tree) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(channel, reservation{rate, t})
}

// Release removes the tree of a channel.
func (r *Reservations) Release(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(channel, reservation{})
	delete(r.byChannel, channel)
}

// Load is the bandwidth that channels reserve of one direction of a link, and the most that they may,
// in bit/s. Most is zero if the link's capacity is not known: no channel is then refused.
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
		out[i] = Load{channels[l.From], r.taken[l.From], r.most(l.From)}
	}
	return out
}

// most returns the bandwidth that all channels together may reserve of a link, in bit/s.
func (r *Reservations) most(from network.PortRef) uint64 {
	return uint64(float64(r.capacity(from)) * r.share)
}

// set replaces the reservation of a channel; r.mu is held.
func (r *Reservations) set(channel string, next reservation) {
	prev := r.byChannel[channel]
	r.byChannel[channel] = next
	if prev.rate == next.rate && prev.tree.Equal(next.tree) {
		return
	}
	taken := maps.Clone(r.taken)
	for _, e := range prev.tree.Edges {
		if taken[e.From] -= prev.rate; taken[e.From] == 0 {
			delete(taken, e.From)
		}
	}
	for _, e := range next.tree.Edges {
		taken[e.From] += next.rate
	}
	r.taken = taken
}

// Shorter returns a tree with fewer links than t that reaches all wanted switches, and reports whether
// there is one to which the channel can move without packets arriving twice.
func Shorter(top *network.Topology, t Tree, w Want, room Room) (Tree, bool) {
	next, refused := Grow(top, Tree{}, w, room)
	if len(refused) > 0 || len(next.Edges) >= len(t.Edges) || HasLoop(t, next) || next.Duplicates(t) {
		return Tree{}, false
	}
	return next, true
}
