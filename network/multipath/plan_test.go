package multipath

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

func ref(sw openflow.DatapathID, port uint32) topology.PortRef {
	return topology.PortRef{Switch: sw, Port: port}
}

func cable(a, b topology.PortRef) []topology.Link {
	return []topology.Link{{From: a, To: b, Capacity: 1e9}, {From: b, To: a, Capacity: 1e9}}
}

func mac(n int) openflow.MAC {
	return openflow.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

func options() Options {
	return Options{Metric: topology.MetricHops, Group: func(n uint16) uint32 { return rule.GroupID(7, n) }}
}

// world follows packets through rules.
type world struct {
	rules  map[openflow.DatapathID]map[openflow.Match]openflow.Action
	groups map[openflow.DatapathID]map[uint32]rule.Group
	links  map[topology.PortRef]topology.PortRef
}

func newWorld(top *topology.Topology) *world {
	w := &world{rules: map[openflow.DatapathID]map[openflow.Match]openflow.Action{}, groups: map[openflow.DatapathID]map[uint32]rule.Group{}, links: map[topology.PortRef]topology.PortRef{}}
	w.cables(top)
	return w
}

func (w *world) cables(top *topology.Topology) {
	clear(w.links)
	for _, l := range top.Links {
		w.links[l.From] = l.To
	}
}

// write installs a part of the only destination on a switch, and removes everything else.
func (w *world) write(sw openflow.DatapathID, p Part) {
	w.rules[sw], w.groups[sw] = map[openflow.Match]openflow.Action{}, map[uint32]rule.Group{}
	for _, r := range p.Rules {
		w.rules[sw][r.Match] = r.Actions[0]
	}
	if p.Group != nil {
		w.groups[sw][p.Group.ID] = *p.Group
	}
}

func (w *world) outs(sw openflow.DatapathID, m openflow.Match) (ports []uint32) {
	a, ok := w.rules[sw][m]
	switch {
	case !ok:
		return nil
	case a.Type != openflow.ActionGroup:
		return []uint32{a.Port()}
	}
	for _, b := range w.groups[sw][a.Arg].Buckets {
		if p := b.Actions[0].Port(); !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// walk follows a packet over all paths that it may take from a switch. It returns where the
// packet may leave the network, and whether it may loop.
func (w *world) walk(from openflow.DatapathID, m openflow.Match) (leaves []topology.PortRef, circle bool) {
	done := map[openflow.DatapathID]bool{}
	var on func(sw openflow.DatapathID)
	on = func(sw openflow.DatapathID) {
		if over, been := done[sw]; been {
			circle = circle || !over
			return
		}
		done[sw] = false
		for _, port := range w.outs(sw, m) {
			if to, ok := w.links[ref(sw, port)]; ok {
				on(to.Switch)
			} else if at := ref(sw, port); !slices.Contains(leaves, at) {
				leaves = append(leaves, at)
			}
		}
		done[sw] = true
	}
	on(from)
	return leaves, circle
}

// fatTree returns a fat tree with k ports a switch: (k/2)^2 core switches, and k pods of k/2
// aggregation switches and k/2 edge switches.
func fatTree(k int) (top *topology.Topology, edges []openflow.DatapathID) {
	var switches []openflow.DatapathID
	var links []topology.Link
	core := func(i int) openflow.DatapathID { return openflow.DatapathID(1 + i) }
	aggregation := func(pod, i int) openflow.DatapathID { return openflow.DatapathID(1_000_000 + pod*1000 + i) }
	edge := func(pod, i int) openflow.DatapathID { return openflow.DatapathID(2_000_000 + pod*1000 + i) }
	h := k / 2
	for i := range h * h {
		switches = append(switches, core(i))
	}
	for pod := range k {
		for i := range h {
			switches = append(switches, aggregation(pod, i), edge(pod, i))
			edges = append(edges, edge(pod, i))
			for j := range h {
				links = append(links, cable(ref(edge(pod, i), uint32(h+j+1)), ref(aggregation(pod, j), uint32(i+1)))...)
				links = append(links, cable(ref(aggregation(pod, i), uint32(h+j+1)), ref(core(i*h+j), uint32(pod+1)))...)
			}
		}
	}
	return topology.New(1, switches, links), edges
}

// TestFatTree checks that every edge switch of a fat tree spreads over all of its links, and
// that every host is reached from everywhere, at its own port.
func TestFatTree(t *testing.T) {
	for _, k := range []int{4, 6} {
		top, edges := fatTree(k)
		p := New(options())
		p.Begin(top, top)
		w := newWorld(top)
		for n, edge := range edges {
			d := Destination{Switch: edge, Hosts: []Host{{MAC: mac(n), Port: 1}}}
			plan, _ := p.Plan(d)
			for _, part := range slices.Concat(plan...) {
				w.write(part.Switch, part)
			}
			m := d.Hosts[0].match()
			for _, sw := range top.Switches {
				if leaves, circle := w.walk(sw, m); circle || !slices.Equal(leaves, []topology.PortRef{ref(edge, 1)}) {
					t.Fatalf("k = %d: from %v to %v: leaves at %v, circle %v", k, sw, edge, leaves, circle)
				}
			}
			other := edges[(n+len(edges)/2)%len(edges)]
			if outs := w.outs(other, m); len(outs) != k/2 {
				t.Errorf("k = %d: from %v to %v by %v, want %d links", k, other, edge, outs, k/2)
			}
		}
	}
}

// random returns a network of random links, some of them parallel.
func random(t *rapid.T) (switches []openflow.DatapathID, links [][]topology.Link) {
	n := rapid.IntRange(2, 12).Draw(t, "switches")
	ports := make([]uint32, n)
	port := func(i int) topology.PortRef {
		ports[i]++
		return ref(openflow.DatapathID(i+1), ports[i]+10)
	}
	for i := range n {
		switches = append(switches, openflow.DatapathID(i+1))
		if i > 0 {
			links = append(links, cable(port(i), port(rapid.IntRange(0, i-1).Draw(t, "up"))))
		}
	}
	for range rapid.IntRange(0, 2*n).Draw(t, "more") {
		a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
		if a != b {
			links = append(links, cable(port(a), port(b)))
		}
	}
	return switches, links
}

// TestNoCircleAtAnyMoment checks that no packet loops whatever changes, and however many waves
// have been written; after the last wave a packet leaves at its host's port, if there is a path.
func TestNoCircleAtAnyMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		switches, links := random(t)
		o := options()
		o.Unequal = rapid.Bool().Draw(t, "unequal")
		if rapid.Bool().Draw(t, "by capacity") {
			o.Metric = topology.MetricCapacity
		}
		if rapid.Bool().Draw(t, "without groups") {
			o.Single = func(d openflow.DatapathID) bool { return d%2 == 0 }
		}
		all := topology.New(1, switches, slices.Concat(links...))
		p, w := New(o), newWorld(all)
		d := Destination{Switch: switches[0], Hosts: []Host{{MAC: mac(1), Port: 1}}}
		m := d.Hosts[0].match()
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			var up []topology.Link
			for _, l := range links {
				if rapid.IntRange(0, 4).Draw(t, "up") > 0 {
					up = append(up, l...)
				}
			}
			here := slices.DeleteFunc(slices.Clone(switches), func(openflow.DatapathID) bool { return rapid.IntRange(0, 9).Draw(t, "away") == 0 })
			w.cables(topology.New(2, switches, up)) // a disconnected switch forwards as before
			p.Begin(topology.New(2, here, up), all)
			plan, ok := p.Plan(d)
			if !ok {
				continue
			}
			without := slices.Clone(here)
			for _, wave := range plan {
				for _, i := range rapid.Permutation(indices(len(wave))).Draw(t, "order") {
					w.write(wave[i].Switch, wave[i])
					without = slices.DeleteFunc(without, func(sw openflow.DatapathID) bool { return sw == wave[i].Switch })
					w.noCircle(t, switches, m)
				}
			}
			for _, sw := range without {
				w.write(sw, Part{})
				w.noCircle(t, switches, m)
			}
			for _, part := range slices.Concat(plan...) {
				if leaves, _ := w.walk(part.Switch, m); !slices.Equal(leaves, []topology.PortRef{ref(d.Switch, 1)}) {
					t.Fatalf("from %v it leaves at %v", part.Switch, leaves)
				}
			}
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func (w *world) noCircle(t *rapid.T, switches []openflow.DatapathID, m openflow.Match) {
	for _, from := range switches {
		if _, circle := w.walk(from, m); circle {
			t.Fatalf("in a circle from %v", from)
		}
	}
}

// TestWithoutWay checks that a destination whose switch is gone has no plan, and that a switch
// without a path has no part.
func TestWithoutWay(t *testing.T) {
	all := topology.New(1, []openflow.DatapathID{1, 2}, cable(ref(1, 10), ref(2, 10)))
	p := New(options())
	d := Destination{Switch: 1, Hosts: []Host{{MAC: mac(1), Port: 1}}}
	p.Begin(topology.New(2, []openflow.DatapathID{2}, nil), all)
	if plan, ok := p.Plan(d); ok {
		t.Errorf("%+v", plan)
	}
	p.Begin(topology.New(2, []openflow.DatapathID{1, 2}, nil), all)
	if plan, ok := p.Plan(d); !ok || len(plan) != 1 || len(plan[0]) != 1 || plan[0][0].Switch != 1 {
		t.Errorf("%+v, %v", plan, ok)
	}
}

// TestPrefixes checks that other switches have one rule for a prefix, and that hosts with
// addresses outside of it have their own rules.
func TestPrefixes(t *testing.T) {
	top := topology.New(1, []openflow.DatapathID{1, 2}, cable(ref(1, 10), ref(2, 10)))
	p := New(options())
	p.Begin(top, top)
	d := Destination{Switch: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}}
	for i, addrs := range [][]string{{"10.1.0.1", "2001:db8::1"}, {"10.1.0.2", "10.2.0.2"}, {}} {
		h := Host{MAC: mac(i), Port: uint32(i + 1)}
		var at []netip.Addr
		for _, a := range addrs {
			at = append(at, netip.MustParseAddr(a))
		}
		h.Local = d.Covers(at)
		d.Hosts = append(d.Hosts, h)
	}
	rules := map[openflow.DatapathID][]string{}
	plan, _ := p.Plan(d)
	for _, part := range slices.Concat(plan...) {
		for _, r := range part.Rules {
			rules[part.Switch] = append(rules[part.Switch], fmt.Sprint(r.Match))
		}
	}
	if len(rules[1]) != 3 || len(rules[2]) != 4 {
		t.Errorf("%v", rules)
	}
}

// TestGroupsAreShared checks that equal groups have one number, also in the plan of another
// planner, as after a restart.
func TestGroupsAreShared(t *testing.T) {
	top, edges := fatTree(6)
	ids := func() map[string]bool {
		p := New(options())
		p.Begin(top, top)
		out := map[string]bool{}
		for i, e := range edges {
			plan, _ := p.Plan(Destination{Switch: e, Hosts: []Host{{MAC: mac(i), Port: 1}}})
			for _, part := range slices.Concat(plan...) {
				if part.Group != nil {
					out[fmt.Sprintf("%v %#x", part.Switch, part.Group.ID)] = true
				}
			}
		}
		return out
	}
	a, b := ids(), ids()
	if len(a) != 36 { // one for each switch except the core switches
		t.Errorf("%d groups", len(a))
	}
	for g := range a {
		if !b[g] {
			t.Errorf("%s has another number next time", g)
		}
	}
}

// TestNumbers checks that unused numbers are used again, and that a switch which has used all
// has none left.
func TestNumbers(t *testing.T) {
	x := newGroupNumbers()
	for i := range uint32(1 << 16) {
		if _, ok := x.get(1, []uint32{i, i + 1}, false); !ok {
			t.Fatalf("none is left after %d", i)
		}
	}
	if _, ok := x.get(1, []uint32{9, 9, 9}, false); ok {
		t.Error("there are more than there are")
	}
	if _, ok := x.get(2, []uint32{9, 9, 9}, false); !ok {
		t.Error("another switch has none")
	}
	x.freeUnused()
	x.get(1, []uint32{0, 1}, false)
	x.freeUnused()
	if n, ok := x.get(1, []uint32{9, 9, 9}, false); !ok || len(x.byNumber[1]) != 2 {
		t.Errorf("%d %v, %d are taken", n, ok, len(x.byNumber[1]))
	}
}

// BenchmarkFatTree plans all prefixes of fat trees: one for each edge switch.
func BenchmarkFatTree(b *testing.B) {
	for _, k := range []int{4, 8, 16, 48} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			top, edges := fatTree(k)
			for b.Loop() {
				p := New(options())
				p.Begin(top, top)
				began, rules := time.Now(), 0
				for i, e := range edges {
					prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
					plan, _ := p.Plan(Destination{Switch: e, Prefixes: []netip.Prefix{prefix}})
					for _, wave := range plan {
						rules += len(wave)
					}
				}
				b.ReportMetric(float64(rules)/time.Since(began).Seconds(), "rules/s")
			}
			b.ReportMetric(float64(len(top.Switches)), "switches")
			b.ReportMetric(float64(runtime.NumCPU()), "cores")
		})
	}
}
