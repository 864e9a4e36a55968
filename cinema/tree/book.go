package tree

import (
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Book has the trees of all channels, and what they take of each link. Its methods may be
// called concurrently.
type Book struct {
	share    float64
	capacity func(network.PortRef) uint64

	mu    sync.Mutex
	held  map[string]holding
	taken map[network.PortRef]uint64 // of the link that leaves by a port, in bit/s
}

type holding struct {
	rate uint64
	tree Tree
}

// NewBook returns a book without trees. Channels may take a share, from 0 to 1, of what
// capacity says of the link that leaves by a port, in bit/s; zero is not known.
func NewBook(share float64, capacity func(network.PortRef) uint64) *Book {
	return &Book{share: share, capacity: capacity, held: map[string]holding{}, taken: map[network.PortRef]uint64{}}
}

// Grow makes the tree of a channel what is wanted, beside those of all others; see the
// function Grow.
func (b *Book) Grow(channel string, top *network.Topology, w Want) (Tree, map[openflow.DatapathID]error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.held[channel].tree
	b.give(channel)
	t, refused := Grow(top, old, w, b.room)
	b.take(channel, w.Rate, t)
	return t, refused
}

// Shorter makes the tree of a channel one of fewer links that reaches all that is wanted, and to
// which it can move with each packet arriving once; false if there is none.
func (b *Book) Shorter(channel string, top *network.Topology, w Want) (Tree, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	had, is := b.held[channel]
	if !is {
		return Tree{}, false
	}
	b.give(channel)
	t, refused := Grow(top, Tree{}, w, b.room)
	if len(refused) > 0 || len(t.Edges) >= len(had.tree.Edges) || Circle(had.tree, t) || t.Twice(had.tree) {
		b.take(channel, had.rate, had.tree)
		return had.tree, false
	}
	b.take(channel, w.Rate, t)
	return t, true
}

// RoomForTwice says whether links have room for twice what channels take of them.
func (b *Book) RoomForTwice(edges []Edge) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(edges, func(e Edge) bool {
		left, all := b.room(e.From)
		return all != 0 && left < b.taken[e.From]
	})
}

// Restore makes a tree of before a restart that of a channel.
func (b *Book) Restore(channel string, rate uint64, t Tree) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(channel)
	b.take(channel, rate, t)
}

// Release ends the tree of a channel.
func (b *Book) Release(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(channel)
}

// Load is what channels take of a link together, and what they may, in bit/s. Most is zero
// where the link's capacity is not known: there they may take all of it.
type Load struct {
	Channels    int
	Taken, Most uint64
}

// Loads are those of links, in their order.
func (b *Book) Loads(links []network.Link) []Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	channels := map[network.PortRef]int{}
	for _, h := range b.held {
		for _, e := range h.tree.Edges {
			channels[e.From]++
		}
	}
	out := make([]Load, len(links))
	for i, l := range links {
		_, most := b.room(l.From)
		out[i] = Load{channels[l.From], b.taken[l.From], most}
	}
	return out
}

// room is what is left; the lock is held.
func (b *Book) room(from network.PortRef) (left, all uint64) {
	all = uint64(float64(b.capacity(from)) * b.share)
	return all - min(all, b.taken[from]), all
}

// give takes what a channel holds out of the account, and take adds it; the lock is held.
func (b *Book) give(channel string) {
	h := b.held[channel]
	for _, e := range h.tree.Edges {
		if b.taken[e.From] -= h.rate; b.taken[e.From] == 0 {
			delete(b.taken, e.From)
		}
	}
	delete(b.held, channel)
}

func (b *Book) take(channel string, rate uint64, t Tree) {
	b.held[channel] = holding{rate, t}
	for _, e := range t.Edges {
		b.taken[e.From] += rate
	}
}
