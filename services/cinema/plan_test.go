package cinema

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// newSituation returns the situation of channel a of 2 Mbit/s, which enters at switch 1 and is
// watched at the given switches, one viewer at each.
func newSituation(r *tree.Reservations, at ...openflow.DatapathID) *situation {
	s := &situation{
		channel: &Channel{Name: "a", Number: 1, BitRate: 2e6}, now: time.Now(), root: agents.Place{At: port(1, edge)}, top: triangle(1), view: r.View("a"),
		from: netip.AddrPortFrom(studioAddr, 20001), to: netip.AddrPortFrom(DefaultMedia, gatewayapi.MediaPort), group: func(n int) uint32 { return uint32(n) },
		audience: audience{
			map[openflow.DatapathID][]tree.Copy{}, map[openflow.DatapathID][]string{}, map[openflow.DatapathID][]network.Carried{}, map[string]error{},
		},
		unverified: func(tree.Edge) bool { return false }, roomTwice: func(string) bool { return true }, queue: func(network.Carried) uint32 { return 0 },
	}
	for _, d := range at {
		gateway := netip.AddrPortFrom(eastAddr, uint16(6000+d))
		s.audience.copies[d] = []tree.Copy{tree.CopyAt(port(d, edge), 0, openflow.MAC{2}, gateway)}
		s.audience.gateways[d] = []string{fmt.Sprintf("hall%d", uint64(d))}
	}
	return s
}

// TestPlanChangesNothing checks that a plan is computed from a situation alone: it reserves
// nothing, leaves the situation as it is, and is the same when it is computed again.
func TestPlanChangesNothing(t *testing.T) {
	r := tree.NewReservations(0.5, func(at network.PortRef) uint64 { return map[network.PortRef]uint64{port(1, 2): 6e6}[at] })
	other := r.View("b")
	if err := r.Reserve(other, 2e6, tree.Tree{Root: port(1, edge), Edges: []tree.Edge{{From: port(1, 2), To: port(2, 1)}}}); err != nil {
		t.Fatal(err)
	}
	s := newSituation(r, 2, 3)
	s.top = triangle(1, [2]openflow.DatapathID{2, 3}) // the link to switch 2 has room for b alone
	p := s.plan()
	if len(p.Tree.Edges) != 1 || p.refused.gateways["hall2"] == nil || p.refused.gateways["hall3"] != nil || len(p.Copies) != 1 {
		t.Fatalf("planned %v, refused %v", p.Tree, p.refused)
	}
	again := s.plan()
	if !reflect.DeepEqual(again.Program(), p.Program()) || !again.Tree.Equal(p.Tree) || again.refused.Error() != p.refused.Error() {
		t.Errorf("planned again:\n%v\nbefore:\n%v", again.Program(), p.Program())
	}
	if len(s.audience.copies) != 2 || len(s.audience.refused) != 0 || len(s.groups) != 0 {
		t.Errorf("the situation has changed: %+v", s)
	}
	if v := r.View("a"); len(v.Tree().Edges) > 0 {
		t.Errorf("reserved %v", v.Tree())
	}
	s.groups = p.Copies
	delete(s.audience.copies, 3)
	if next := s.plan(); len(next.Copies) != 0 || p.Copies[3].Len() != 1 {
		t.Errorf("without viewers there are copies at %d switches; the earlier plan has %d", len(next.Copies), p.Copies[3].Len())
	}
}

// TestRefusalIsReturned checks that the reconciliation of a channel returns which gateways do
// not get it, and that what they would have needed stays free.
func TestRefusalIsReturned(t *testing.T) {
	b := newBench(t)
	b.net.set(func() { b.net.capacity = 6e6 })
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{2, 3}))
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.west, 2, 6000, "b")
	if _, err := b.service.viewers.request(&gatewayapi.Wanted{Gateway: "east", Viewer: id(3), Port: 6001, Channels: []string{"b"}}, bounds{viewers: 10}, time.Now()); err != nil {
		t.Fatal(err)
	}
	r, ok := errors.AsType[*refusals](b.service.Channels.Reconcile(t.Context(), "b"))
	if !ok || len(r.gateways) != 1 {
		t.Fatalf("refusals %v", r)
	}
	if _, ok := errors.AsType[*tree.Refusal](r.gateways["east"]); !ok {
		t.Errorf("the reason is %v", r.gateways["east"])
	}
	if v := b.service.trees.reservations.View("b"); len(v.Tree().Edges) != 1 {
		t.Errorf("reserved %v", v.Tree())
	}
}

// TestPlansTogether checks that channels that are planned at the same time promise no link more
// than it may carry, and that each viewer who is answered has a channel.
func TestPlansTogether(t *testing.T) {
	b := newBench(t)
	b.net.set(func() { b.net.capacity = 6e6 }) // 3 Mbit/s for channels of 2 Mbit/s
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{2, 3}))
	for range 20 {
		var all sync.WaitGroup
		errs := make([]error, 2)
		for i, channel := range []string{"a", "b"} {
			all.Go(func() { errs[i] = b.want(b.east, i+1, uint16(6000+i), channel) })
		}
		all.Wait()
		links := b.service.trees.reservations.Loads([]network.Link{{From: port(1, 2)}})
		if links[0].Taken > links[0].Most {
			t.Fatalf("%+v", links[0])
		}
		if errs[0] == nil && errs[1] == nil {
			t.Fatal("both channels fit on a link for one")
		}
		if errs[0] != nil && errs[1] != nil {
			t.Fatalf("neither channel is there: %v", errs)
		}
		for i := range errs {
			b.mustWant(b.east, i+1, uint16(6000+i))
		}
		b.eventually("the link is free", func() bool {
			return slices.Equal(b.service.trees.reservations.Loads([]network.Link{{From: port(1, 2)}}), []tree.Load{{Most: 3e6}})
		})
	}
}
