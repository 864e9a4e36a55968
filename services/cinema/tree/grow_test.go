package tree

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// square returns four switches in a ring, 1-2-3-4, with links of 100 Mbit/s.
func square(without ...openflow.DatapathID) *network.Topology {
	var links []network.Link
	for i := range openflow.DatapathID(4) {
		a, b := i+1, (i+1)%4+1
		x, y := network.PortRef{Switch: a, Port: uint32(b)}, network.PortRef{Switch: b, Port: uint32(a)}
		links = append(links, network.Link{From: x, To: y}, network.Link{From: y, To: x})
	}
	all := slices.DeleteFunc([]openflow.DatapathID{1, 2, 3, 4}, func(d openflow.DatapathID) bool { return slices.Contains(without, d) })
	return topology.New(1, all, links)
}

func newSquareBook() *Reservations {
	return NewReservations(0.5, func(network.PortRef) uint64 { return 100e6 })
}

var in = network.PortRef{Switch: 1, Port: 9}

func (t Tree) text() (out []string) {
	for _, e := range t.Edges {
		out = append(out, fmt.Sprintf("%d>%d", e.From.Switch, e.To.Switch))
	}
	return out
}

// reserveGrown grows the tree of a channel and reserves it, again if another channel was faster.
func reserveGrown(r *Reservations, channel string, top *network.Topology, w Want) (Tree, map[openflow.DatapathID]error) {
	for {
		v := r.View(channel)
		t, refused := Grow(top, v.Tree(), w, v.Room)
		if r.Reserve(v, w.Rate, t) == nil {
			return t, refused
		}
	}
}

// reserveShorter reserves a shorter tree for a channel if there is one, like reserveGrown.
func reserveShorter(r *Reservations, channel string, top *network.Topology, w Want) (Tree, bool) {
	for {
		v := r.View(channel)
		t, ok := Shorter(top, v.Tree(), w, v.Room)
		if !ok || r.Reserve(v, w.Rate, t) == nil {
			return t, ok
		}
	}
}

func grow(t *testing.T, r *Reservations, channel string, top *network.Topology, rate uint64, want []string, to ...openflow.DatapathID) map[openflow.DatapathID]error {
	t.Helper()
	got, refused := reserveGrown(r, channel, top, Want{Root: in, Rate: rate, Switches: to})
	if !slices.Equal(got.text(), want) {
		t.Errorf("%s to %v: %v, want %v, refused %v", channel, to, got.text(), want, refused)
	}
	return refused
}

// TestGrow checks that a tree grows by the fewest links, is pruned, keeps links that a new tree
// would not have, is rerouted around a broken link, and reports where there is no room.
func TestGrow(t *testing.T) {
	r := newSquareBook()
	grow(t, r, "a", square(), 20e6, []string{"1>2"}, 2)
	grow(t, r, "a", square(), 20e6, []string{"1>2", "2>3"}, 2, 3)
	grow(t, r, "a", square(), 20e6, []string{"1>2", "2>3", "3>4"}[:2], 3, 3)
	r.Restore("a", 20e6, Tree{in, []Edge{{network.PortRef{Switch: 4, Port: 3}, network.PortRef{Switch: 3, Port: 4}}, {network.PortRef{Switch: 1, Port: 4}, network.PortRef{Switch: 4, Port: 1}}}})
	grow(t, r, "a", square(), 20e6, []string{"4>3", "1>4"}, 3)
	grow(t, r, "a", square(4), 20e6, []string{"1>2", "2>3"}, 3)
	grow(t, r, "b", square(), 40e6, []string{"1>4", "4>3"}[:1], 4)
	refused := grow(t, r, "c", square(), 40e6, nil, 2, 4)
	const want = "link 0000000000000001/2: 40Mbit wanted, 30Mbit of the 50Mbit for channels are left"
	if len(refused) != 2 || refused[2].Error() != want {
		t.Errorf("refused %v, want %s", refused, want)
	}
	r.Release("a")
	grow(t, r, "c", square(), 40e6, []string{"1>2"}, 2)
	v := r.View("d")
	if left, all := v.Room(network.PortRef{Switch: 1, Port: 2}); left != 10e6 || all != 50e6 {
		t.Errorf("%d left of %d", left, all)
	}
	top := square()
	for i, got := range r.Loads(top.Links) {
		want := map[string]Load{"1>2": {1, 40e6, 50e6}, "1>4": {1, 40e6, 50e6}}
		path := Tree{Edges: []Edge{{top.Links[i].From, top.Links[i].To}}}.text()[0]
		if w, carries := want[path]; carries && got != w || !carries && got != (Load{Most: 50e6}) {
			t.Errorf("%s: %+v, want %+v", path, got, w)
		}
	}
}

// TestSwitchDisconnected checks that a disconnected switch keeps its old path, and gets none if it had none.
func TestSwitchDisconnected(t *testing.T) {
	r := newSquareBook()
	grow(t, r, "a", square(), 20e6, []string{"1>2", "2>3"}, 2, 3)
	if refused := grow(t, r, "a", square(3), 20e6, []string{"1>2", "2>3"}, 2, 3); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	if refused := grow(t, r, "b", square(3), 20e6, []string{"1>2"}, 2, 3); !errors.Is(refused[3], network.ErrSwitchDown) {
		t.Errorf("refused %v", refused)
	}
	if refused := grow(t, r, "a", square(2, 4), 20e6, []string{"1>2", "2>3"}, 3); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	if refused := grow(t, r, "b", square(2, 4), 20e6, nil, 3); !errors.Is(refused[3], ErrNoPath) {
		t.Errorf("refused %v", refused)
	}
}

// TestReserveAfterAnother checks that a tree is not reserved if another channel has taken its
// room since it was planned, that this changes nothing, and that a channel may keep a link on
// which there is no room for it any more.
func TestReserveAfterAnother(t *testing.T) {
	r, top := newSquareBook(), square()
	plan := func(channel string, rate uint64) (View, Tree) {
		v := r.View(channel)
		next, _ := Grow(top, v.Tree(), Want{Root: in, Rate: rate, Switches: []openflow.DatapathID{2}}, v.Room)
		return v, next
	}
	a, aTree := plan("a", 30e6)
	b, bTree := plan("b", 30e6)
	if err := r.Reserve(a, 30e6, aTree); err != nil {
		t.Fatal(err)
	}
	if err := r.Reserve(b, 30e6, bTree); !errors.Is(err, ErrRoomTaken) {
		t.Errorf("the same room again: %v", err)
	}
	if v := r.View("b"); len(v.Tree().Edges) > 0 {
		t.Errorf("what was refused holds %v", v.Tree().text())
	}
	direct := network.PortRef{Switch: 1, Port: 2}
	if left, all := b.Room(direct); left != 50e6 || all != 50e6 {
		t.Errorf("a view has changed: %d left of %d", left, all)
	}
	if v, next := plan("b", 30e6); !slices.Equal(next.text(), []string{"3>2", "4>3", "1>4"}) || r.Reserve(v, 30e6, next) != nil {
		t.Errorf("planned again: %v", next.text())
	}
	r.capacity = func(network.PortRef) uint64 { return 20e6 }
	v := r.View("a")
	if err := r.Reserve(v, 30e6, v.Tree()); err != nil {
		t.Errorf("a tree on links that have become smaller: %v", err)
	}
	if room := v.RoomForDouble(v.Tree(), 30e6, v.Tree().Edges); room {
		t.Error("there is room for twice what does not fit once")
	}
}

// TestShorterTogether checks that channels that try shorter paths at the same time reserve no
// more than there is.
func TestShorterTogether(t *testing.T) {
	r := newSquareBook()
	long := Tree{in, []Edge{
		{network.PortRef{Switch: 4, Port: 3}, network.PortRef{Switch: 3, Port: 4}},
		{network.PortRef{Switch: 3, Port: 2}, network.PortRef{Switch: 2, Port: 3}},
		{network.PortRef{Switch: 1, Port: 4}, network.PortRef{Switch: 4, Port: 1}},
	}}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		r.Restore(name, 15e6, long)
	}
	r.Restore("other", 15e6, Tree{in, []Edge{{network.PortRef{Switch: 1, Port: 2}, network.PortRef{Switch: 2, Port: 1}}}})
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			reserveShorter(r, name, square(), Want{Root: in, Rate: 15e6, Switches: []openflow.DatapathID{2}})
		})
	}
	all.Wait()
	links := square().Links
	for i, load := range r.Loads(links) {
		if load.Taken > load.Most {
			t.Errorf("link %v carries %d of %d bit/s", links[i].From, load.Taken, load.Most)
		}
		if want := map[network.PortRef]int{{Switch: 1, Port: 2}: 3, {Switch: 1, Port: 4}: 1, {Switch: 4, Port: 3}: 1, {Switch: 3, Port: 2}: 1}[links[i].From]; load.Channels != want {
			t.Errorf("link %v carries %d channels, want %d", links[i].From, load.Channels, want)
		}
	}
}
