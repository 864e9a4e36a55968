package multipath

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func count(ports []uint32) map[uint32]int {
	out := map[uint32]int{}
	for _, p := range ports {
		out[p]++
	}
	return out
}

// TestSpread checks that links have buckets in proportion to their capacity.
func TestSpread(t *testing.T) {
	up := func(port uint32, capacity uint64) NextHop { return NextHop{Port: port, Capacity: capacity, Up: true} }
	for _, c := range []struct {
		name string
		ways []NextHop
		want map[uint32]int
	}{
		{"alike", []NextHop{up(4, 10), up(3, 10), up(1, 10), up(2, 10)}, map[uint32]int{1: 16, 2: 16, 3: 16, 4: 16}},
		{"three", []NextHop{up(3, 10), up(1, 10), up(2, 10)}, map[uint32]int{1: 22, 2: 21, 3: 21}},
		{"not known", []NextHop{up(1, 0), up(2, 1000)}, map[uint32]int{1: 32, 2: 32}},
		{"one to three", []NextHop{up(1, 10), up(2, 30)}, map[uint32]int{1: 16, 2: 48}},
		{"one is hardly there", []NextHop{up(1, 1), up(2, 100000)}, map[uint32]int{2: 64}},
		{"one is gone", []NextHop{up(1, 10), {Port: 2, Capacity: 10}, up(3, 10), up(4, 10), {Port: 5, Capacity: 10}}, map[uint32]int{1: 22, 3: 21, 4: 21}},
		{"only the one is left that is hardly there", []NextHop{up(1, 1), {Port: 2, Capacity: 100000}}, map[uint32]int{1: 64}},
		{"none is left", []NextHop{{Port: 2}}, map[uint32]int{}},
	} {
		if got := count(Spread(c.ways)); len(got) != len(c.want) || !slices.Equal(sorted(got), sorted(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func sorted(m map[uint32]int) (out [][2]int) {
	for p, n := range m {
		out = append(out, [2]int{int(p), n})
	}
	slices.SortFunc(out, func(a, b [2]int) int { return a[0] - b[0] })
	return out
}

// TestSpreadMovesNoOther checks that only a link's own buckets change when it goes or comes
// back, and that they are shared among the others.
func TestSpreadMovesNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "links")
		all := make([]NextHop, n)
		for i := range all {
			all[i] = NextHop{Port: uint32(i + 1), Capacity: rapid.Uint64Range(0, 40).Draw(t, "capacity"), Up: true}
		}
		some := slices.Clone(all)
		for i := range some {
			some[i].Up = rapid.Bool().Draw(t, "up")
		}
		before, after := Spread(all), Spread(some)
		isUp := func(port uint32) bool { return some[port-1].Up }
		if !slices.ContainsFunc(some, func(w NextHop) bool { return w.Up }) {
			if len(after) > 0 {
				t.Fatalf("%v of links that are gone", after)
			}
			return
		}
		if len(before) != len(after) {
			t.Fatalf("%d places, %d before", len(after), len(before))
		}
		for i, port := range before {
			if !isUp(after[i]) {
				t.Fatalf("place %d is that of link %d, which is gone", i, after[i])
			}
			if isUp(port) && after[i] != port {
				t.Fatalf("place %d of link %d is that of %d now", i, port, after[i])
			}
		}
	})
}

// TestSpreadIsEven checks that each link's buckets are beside those of other links, and that
// each has as many as any other.
func TestSpreadIsEven(t *testing.T) {
	for n := 2; n <= 100; n++ {
		ways := make([]NextHop, n)
		for i := range ways {
			ways[i] = NextHop{Port: uint32(i + 1), Capacity: 10, Up: true}
		}
		ports := Spread(ways)
		if len(ports) != buckets {
			t.Errorf("%d links have %d places", n, len(ports))
		}
		for i, p := range ports[1:] {
			if p == ports[i] {
				t.Fatalf("of %d links one has two places beside each other: %v", n, ports)
			}
		}
		counts := count(ports)
		least, most := buckets, 0
		for _, k := range counts {
			least, most = min(least, k), max(most, k)
		}
		if most > least+1 || len(counts) != min(n, buckets) {
			t.Errorf("of %d links %d have places, one %d, one %d", n, len(counts), least, most)
		}
	}
}
