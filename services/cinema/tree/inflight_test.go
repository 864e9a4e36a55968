package tree

import (
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
)

// there reports whether all links of a tree are up.
func (w *world) there(t Tree) bool {
	return !slices.ContainsFunc(t.Edges, func(e Edge) bool { return w.down[e.From] })
}

// inFlight is a datagram in flight: where it is, and where it has arrived.
type inFlight struct {
	at      []step
	arrived map[arrival]int
}

// planLossless installs a channel's program in its order while datagrams are sent in, each of
// which advances at random times. Each arrives wherever the channel goes both before and after,
// and exactly once unless twice is true.
func (w *world) planLossless(t *rapid.T, c *channel, p network.Program, twice bool) {
	before, _ := w.send(t, c, c.root)
	change, err := w.ledger.Plan(w.owner, c.name, p)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "who goes on"), 0))
	var all []*inFlight
	forward := func(x *inFlight) {
		s := x.at[0]
		x.at = append(x.at[1:], w.forward(t, c, s, x.arrived, map[network.PortRef]int{})...)
	}
	for _, op := range slices.Concat(change.Writes, change.Deletes) {
		all = append(all, &inFlight{[]step{c.sent(c.root)}, map[arrival]int{}})
		for _, x := range all {
			for len(x.at) > 0 && luck.IntN(2) > 0 {
				forward(x)
			}
		}
		w.change(t, op)
		w.send(t, c, c.root) // fails if there is a loop
	}
	change.Confirm()
	after, _ := w.send(t, c, c.root)
	for i, x := range all {
		for len(x.at) > 0 {
			forward(x)
		}
		for to := range before {
			if n := x.arrived[to]; after[to] > 0 && (n == 0 || n > 1 && !twice) {
				t.Fatalf("%s: what was sent before message %d of %d arrives %d times at %v", c.name, i+1, len(all), n, to)
			}
		}
	}
}
