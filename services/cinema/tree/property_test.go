package tree

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestChannelsArrive checks, for any sequence of joins, leaves, changes and failures: each
// viewer gets each of its channels exactly once, and nobody else gets any. No link carries a
// channel twice, or more than its share, and there is no path with room for what is refused.
// Between any two messages to switches no packet loops. When nobody watches, nothing is left.
func TestChannelsArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step(t)
			shorter := rapid.Bool().Draw(t, "shorter")
			for _, c := range w.channels {
				w.follow(t, c, shorter)
			}
			w.check(t)
		}
		for _, c := range w.channels {
			clear(c.seats)
			w.follow(t, c, false)
		}
		w.checkEmpty(t)
	})
}

// TestNoLoop checks that no packet loops during the change from any tree to any other, in
// whatever order the switches follow.
func TestNoLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		c := w.channels[0]
		for range rapid.IntRange(2, 4).Draw(t, "trees") {
			w.lead(t, c, w.drawTree(t, c.root), nil)
		}
	})
}

// TestNoLoopInRing checks the shortest possible loop: a ring that is entered at another place
// than before.
func TestNoLoopInRing(t *testing.T) {
	ring := [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 2}, {1, 4}}
	path := func(w *world, order ...int) []Edge {
		var edges []Edge
		for i := range order[1:] {
			for _, l := range w.links {
				if l.From.Switch == openflow.DatapathID(order[i]) && l.To.Switch == openflow.DatapathID(order[i+1]) {
					edges = append(edges, Edge{l.From, l.To})
				}
			}
		}
		return edges
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(5)
		for _, x := range ring {
			w.join(x[0], x[1], 0, 0)
		}
		c := &channel{name: "c", number: 1, root: w.port(1), groups: map[openflow.DatapathID]*Groups{}}
		all := func(Edge) bool { return true }
		w.lead(t, c, connected(c.root, path(w, 1, 2, 3, 4, 5), all), nil)
		w.lead(t, c, connected(c.root, path(w, 1, 4, 5, 2, 3), all), nil)
	})
}

// TestRootMovesToGateway checks that no packet is sent back to where the channel came from if
// its ingress gateway moves behind the port of a gateway that already gets the channel.
func TestRootMovesToGateway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(2)
		w.join(1, 2, 0, 0)
		root, shared := w.port(1), w.port(2)
		w.queues = map[network.PortRef]uint32{shared: 1}
		w.gateways = []gateway{{at: shared, mac: openflow.MAC{2, 0, 0, 0, 1, 0}, addr: netip.AddrFrom4([4]byte{10, 0, 2, 1})}}
		c := &channel{name: "c", number: 1, rate: 1e6, root: root, seats: map[viewerPort]bool{{0, 6000}: true}, groups: map[openflow.DatapathID]*Groups{}}
		w.channels = []*channel{c}
		for _, c.root = range []network.PortRef{root, shared, root} {
			w.follow(t, c, false)
			w.check(t)
		}
	})
}

// drawTree draws a tree that reaches some switches by any links.
func (w *world) drawTree(t *rapid.T, root network.PortRef) Tree {
	var edges []Edge
	if len(w.links) > 0 {
		for _, l := range rapid.Permutation(w.links).Draw(t, "links") {
			edges = append(edges, Edge{l.From, l.To})
		}
	}
	left := rapid.IntRange(0, len(w.switches)).Draw(t, "links of the tree")
	return connected(root, edges, func(Edge) bool { left--; return left >= 0 })
}

// TestMoves checks Moves, HasLoop and Common. A long path that is reversed would loop for a
// moment, so it is removed first.
func TestMoves(t *testing.T) {
	at := func(d openflow.DatapathID, p uint32) network.PortRef { return network.PortRef{Switch: d, Port: p} }
	edge := func(from, to openflow.DatapathID) Edge { return Edge{at(from, uint32(10+to)), at(to, uint32(20+from))} }
	tree := func(root network.PortRef, edges ...Edge) Tree {
		return connected(root, edges, func(Edge) bool { return true })
	}
	in := at(1, 1)
	there := tree(in, edge(1, 2), edge(2, 3), edge(3, 4), edge(4, 5))
	for name, x := range map[string]struct {
		next  Tree
		moves bool
		loops bool
		kept  int
	}{
		"the same":           {there, false, false, 4},
		"more":               {tree(in, append(slices.Clone(there.Edges), edge(1, 6))...), false, false, 4},
		"less":               {tree(in, edge(1, 2), edge(2, 3)), false, false, 2},
		"nothing":            {Tree{Root: in}, false, false, 0},
		"the other way":      {tree(in, edge(1, 4), edge(4, 5), edge(5, 2), edge(2, 3)), true, true, 0},
		"a way of its own":   {tree(in, edge(1, 4), edge(4, 3), edge(3, 2), edge(1, 5)), true, false, 0},
		"by another link":    {tree(in, edge(1, 2), edge(2, 3), edge(3, 4), edge(3, 5)), true, false, 3},
		"by another port":    {tree(at(1, 2), there.Edges...), true, false, 0},
		"by another gateway": {tree(at(5, 1), edge(5, 4)), true, false, 0},
	} {
		if kept := there.Common(x.next); there.Moves(x.next) != x.moves || HasLoop(there, x.next) != x.loops || len(kept.Edges) != x.kept {
			t.Errorf("%s: moves %v, loops %v, kept %v", name, there.Moves(x.next), HasLoop(there, x.next), kept)
		}
	}
	if (Tree{}).Moves(there) {
		t.Error("a first tree moves")
	}
}

// step makes a random change.
func (w *world) step(t *rapid.T) {
	c := rapid.SampledFrom(w.channels).Draw(t, "channel")
	s := viewerPort{rapid.IntRange(0, len(w.gateways)-1).Draw(t, "gateway"), uint16(rapid.IntRange(6000, 6003).Draw(t, "port"))}
	switch rapid.SampledFrom([]string{"join", "join", "join", "leave", "change", "cut", "mend", "move", "rate", "switch", "capacity"}).Draw(t, "what") {
	case "join":
		c.seats[s] = true
	case "leave":
		delete(c.seats, s)
	case "change":
		for _, other := range w.channels {
			if other != c && other.seats[s] {
				delete(other.seats, s)
				c.seats[s] = true
			}
		}
	case "cut", "mend":
		if len(w.links) > 0 {
			l := rapid.SampledFrom(w.links).Draw(t, "link")
			w.down[l.From], w.down[l.To] = !w.down[l.From], w.down[l.From] // one direction may be down
		}
	case "move":
		c.root = rapid.SampledFrom(w.edges).Draw(t, "to")
	case "rate":
		c.rate = rapid.SampledFrom([]uint64{1, 2, 5, 9}).Draw(t, "rate") * 1e6
	case "capacity":
		if len(w.links) > 0 {
			w.capacity[rapid.SampledFrom(w.links).Draw(t, "link").From] = rapid.SampledFrom([]uint64{0, 4, 20}).Draw(t, "capacity") * 1e6
		}
	case "switch":
		g := &w.gateways[s.gateway]
		g.at = rapid.SampledFrom(w.edges).Draw(t, "gateway moves to")
	}
}

// check fails the test if the state of the world is wrong.
func (w *world) check(t *rapid.T) {
	load := map[network.PortRef]uint64{}
	for _, c := range w.channels {
		arrived, crossed := w.send(t, c, c.root)
		want := map[arrival]int{}
		for s := range c.seats {
			if g := w.gateways[s.gateway]; c.refused[g.at.Switch] == nil {
				want[arrival{g.at, g.mac, netip.AddrPortFrom(g.addr, s.port)}] = 1
			}
		}
		if !maps.Equal(arrived, want) {
			t.Fatalf("%s: arrived %v, want %v, by %v", c.name, arrived, want, c.applied)
		}
		for at, n := range crossed {
			if load[at] += c.rate; n != 1 || w.down[at] {
				t.Fatalf("%s crosses %v %d times, down: %v", c.name, at, n, w.down[at])
			}
		}
		w.checkStrangers(t, c)
		w.checkMeter(t, c)
	}
	for at, sum := range load {
		if all := w.capacity[at]; all != 0 && sum > uint64(float64(all)*share) {
			t.Fatalf("link %v has %d bit/s, and carries %d of channels", at, all, sum)
		}
	}
}

// checkRefusal checks independently that no path with room leads to a switch.
func (w *world) checkRefusal(t *rapid.T, c *channel, d openflow.DatapathID, why error) {
	taken := map[network.PortRef]uint64{}
	for _, other := range w.channels {
		if held := w.book.byChannel[other.name]; other != c {
			for _, e := range held.tree.Edges {
				taken[e.From] += held.rate
			}
		}
	}
	full := func(at network.PortRef) bool {
		all := uint64(float64(w.capacity[at]) * share)
		return all != 0 && all-min(all, taken[at]) < c.rate
	}
	reached := map[openflow.DatapathID]bool{c.root.Switch: true}
	for range w.switches {
		for _, l := range w.links {
			if reached[l.From.Switch] && !w.down[l.From] && !full(l.From) {
				reached[l.To.Switch] = true
			}
		}
	}
	if refusal, is := errors.AsType[*Refusal](why); reached[d] || is && !full(refusal.Link.From) || !is && !errors.Is(why, ErrNoPath) {
		t.Fatalf("%s: switch %v is refused, since %v; there is a way: %v", c.name, d, why, reached[d])
	}
}

// checkStrangers sends the channel's packets in at ports where they do not belong.
func (w *world) checkStrangers(t *rapid.T, c *channel) {
	for _, at := range w.edges {
		if at == c.root {
			continue
		}
		if arrived, crossed := w.send(t, c, at); len(arrived)+len(crossed) > 0 {
			t.Fatalf("%s comes in at %v and gets to %v, by %v", c.name, at, arrived, crossed)
		}
	}
}

// checkMeter fails the test unless the channel has a meter where it enters, and only there.
func (w *world) checkMeter(t *rapid.T, c *channel) {
	for d, table := range w.tables {
		rate := uint32(0)
		for _, m := range table.Meters() {
			if m.Meter == MeterNumber(c.number) {
				rate = m.Bands[0].Rate
			}
		}
		want := uint32(0)
		if d == c.root.Switch && c.watched() {
			want = uint32(c.rate * 5 / 4 / 1000)
		}
		if rate != want {
			t.Fatalf("%s is held to %d kbit/s at switch %v, want %d", c.name, rate, d, want)
		}
	}
}

// watched reports whether somebody gets the channel.
func (c *channel) watched() bool {
	for _, g := range c.groups {
		if g.Len() > 0 {
			return true
		}
	}
	return false
}

func (w *world) checkEmpty(t *rapid.T) {
	for d, table := range w.tables {
		for _, e := range table.Entries() {
			if _, offset, _ := rule.OfPriority(e.Priority); offset > rule.RewriteChannelGuard+1 {
				t.Fatalf("switch %v still has %v", d, &e.FlowMod)
			}
		}
		if groups := table.Groups(); len(groups) > 0 {
			t.Fatalf("switch %v still has %v", d, groups)
		}
		if meters := table.Meters(); len(meters) > 0 {
			t.Fatalf("switch %v still has meters %v", d, meters)
		}
	}
	if len(w.book.taken) > 0 {
		t.Fatalf("still taken: %v", w.book.taken)
	}
}

// TestGroups checks that a copy stays in its group whatever happens to others, and that groups
// are filled up to their bounds.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, has := &Groups{}, map[Copy]bool{}
		one := func(port int) Copy {
			return Copy{Out: 1, To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(port))}
		}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			first := rapid.IntRange(1024, 1024+MaxCopies+500).Draw(t, "first")
			for port := first; port < first+rapid.SampledFrom([]int{1, 5, 800, 3000}).Draw(t, "many"); port++ {
				if rapid.Bool().Draw(t, "join") || has[one(port)] {
					has[one(port)] = !has[one(port)]
				}
				maps.DeleteFunc(has, func(_ Copy, is bool) bool { return !is })
			}
			before := maps.Clone(g.at)
			over := g.Set(slices.Collect(maps.Keys(has)))
			if g.Len()+len(over) != len(has) || len(over) != max(0, len(has)-MaxCopies) {
				t.Fatalf("%d copies, %d over, of %d", g.Len(), len(over), len(has))
			}
			sum := 0
			for n := range MaxGroups {
				sum += len(g.buckets(n))
				if len(g.buckets(n)) > MaxBuckets {
					t.Fatalf("group %d has %d buckets", n, len(g.buckets(n)))
				}
			}
			for c, n := range g.at {
				if prev, stayed := before[c]; stayed && prev != n {
					t.Fatalf("%v has gone from group %d to %d", c, prev, n)
				}
			}
			if sum != g.Len() || g.Len() > 0 && g.Count() == 0 {
				t.Fatalf("%d buckets for %d copies, in %d groups", sum, g.Len(), g.Count())
			}
		}
	})
}
