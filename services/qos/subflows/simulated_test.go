package subflows

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// TestSilentStays: a subflow that carries nothing is not moved from a full link, where nothing
// holds it up.
func TestSilentStays(t *testing.T) {
	const capacity = 10 * mbit
	top, at := parallel(2, capacity)
	used := map[reserve.Link]uint64{at(1): capacity}
	s := NewSimulated(top, func(l reserve.Link) reserve.Use { return reserve.Use{Capacity: capacity, Used: used[l]} }, 4, time.Second)
	now := time.Unix(0, 0)
	if _, err := s.Place("a", 1, network.PortRef{Switch: 1, Port: 9}, network.PortRef{Switch: 2, Port: 9}, now); err != nil {
		t.Fatal(err)
	}
	used[at(0)], used[at(1)] = capacity, 0
	for _, carried := range []uint64{0, 1000} { // in bytes a second
		moved := 0
		for range 4 {
			now = now.Add(time.Second)
			total := carried * uint64(now.Unix())
			moved += len(s.Read(now, func(string) uint64 { return total }))
		}
		if (carried > 0) != (moved > 0) {
			t.Errorf("a subflow that carries %d bytes a second has moved %d times", carried, moved)
		}
	}
}

// TestLastTransferStillMeasured: a way looks full of what has ended a moment ago, and the other is
// that of the connection's first subflow. It wins nothing by all its further ones there.
func TestLastTransferStillMeasured(t *testing.T) {
	const capacity = 10 * mbit
	top, at := parallel(2, capacity)
	used := map[reserve.Link]uint64{at(1): capacity}
	s := NewSimulated(top, func(l reserve.Link) reserve.Use { return reserve.Use{Capacity: capacity, Used: used[l]} }, 4, 5*time.Second)
	now := time.Unix(0, 0)
	ways := map[uint32]int{}
	for _, name := range []string{"a", "b", "c"} {
		hops, err := s.Place(name, 1, network.PortRef{Switch: 1, Port: 9}, network.PortRef{Switch: 2, Port: 9}, now)
		if err != nil {
			t.Fatal(err)
		}
		ways[hops[0].Out-1]++
		now = now.Add(time.Second)
	}
	if ways[0] == 0 || ways[1] == 0 {
		t.Errorf("three subflows of a connection over two ways: %v", ways)
	}
}

// parallel returns two switches with several paths of one more switch between them, and the
// port of each path at the first switch.
func parallel(ways uint32, capacity uint64) (t *network.Topology, at func(way uint32) reserve.Link) {
	var links []network.Link
	switches := []openflow.DatapathID{1, 2}
	for way := range ways { // over 3, 4 and so on
		by := openflow.DatapathID(3 + way)
		switches = append(switches, by)
		for end := range uint32(2) {
			at, to := network.PortRef{Switch: openflow.DatapathID(1 + end), Port: 1 + way}, network.PortRef{Switch: by, Port: 1 + end}
			links = append(links, network.Link{From: at, To: to, Capacity: capacity}, network.Link{From: to, To: at, Capacity: capacity})
		}
	}
	return topology.New(1, switches, links), func(way uint32) reserve.Link { return reserve.Link{Switch: 1, Port: 1 + way} }
}

// TestSimulated: without network and clock subflows go where Service leads them: each on another
// way, and from a full link to one that is not, once two readings have shown it.
func TestSimulated(t *testing.T) {
	const capacity = 100 * mbit
	top, at := parallel(3, capacity)
	used := map[reserve.Link]uint64{at(0): 60 * mbit}
	s := NewSimulated(top, func(l reserve.Link) reserve.Use {
		return reserve.Use{Capacity: capacity, Used: used[l]}
	}, 4, time.Second)
	now := time.Unix(0, 0)
	from, to := network.PortRef{Switch: 1, Port: 9}, network.PortRef{Switch: 2, Port: 9}
	place := func(name string, token uint32) uint32 {
		t.Helper()
		hops, err := s.Place(name, token, from, to, now)
		if err != nil {
			t.Fatal(err)
		}
		return hops[0].Out - 1
	}
	first, second := place("a", 1), place("b", 1)
	if first == second || first == 0 || second == 0 {
		t.Fatalf("two subflows go by ways %d and %d, want 1 and 2, which nobody uses", first, second)
	}
	s.End("b")
	s.End("b") // twice is once
	if third := place("c", 2); third != second {
		t.Errorf("another goes by way %d, want %d, which has been left", third, second)
	}
	s.End("c")

	// Somebody else fills the way of the first; the other one that was free is so still.
	used[at(first)] = capacity
	carried := uint64(0)
	for reading := range 8 {
		now = now.Add(time.Second)
		carried += 10 * mbit / 8
		moved := s.Read(now, func(string) uint64 { return carried })
		if len(moved) == 0 {
			continue
		}
		if got := moved["a"][0].Out - 1; got != second || reading == 0 {
			t.Errorf("at reading %d it moves to way %d, want %d after two", reading, got, second)
		}
		return
	}
	t.Error("it stays on a full link")
}
