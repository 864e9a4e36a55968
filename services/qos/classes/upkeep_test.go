package classes

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

func end(last byte) End { return End{IP: netip.AddrFrom4([4]byte{10, 0, 0, last})} }

// placed is a service with a class from the first of three switches to the last.
func placed(t *testing.T) (*Service, *still, *entry) {
	t.Helper()
	f := newStill()
	s := New(quiet(f))
	c := Class{Name: "x", Flows: []Flow{{Src: end(1), Dst: end(3)}}}
	e := &entry{
		class: c, queue: 4, state: StateActive,
		placement: placement{mark: 7, routes: options(f.Topology(), 0, host(1), host(3), false)},
	}
	s.classes.byName["x"] = e
	return s, f, e
}

// After a restart a default rate is promised as soon as capacities are known.
func TestDefaultRatesWaitForCapacities(t *testing.T) {
	s, f, e := placed(t)
	at := portRef(2, 2)
	s.plan.restore(e)
	if got := s.Book.Promised(at); got != 0 || !e.unbooked {
		t.Fatalf("%d bit/s of an unknown capacity, unbooked: %v", got, e.unbooked)
	}
	f.capacity.Store(10e6)
	s.completePromises(t.Context())
	if got := s.Book.Promised(at); got != 500_000 || e.unbooked {
		t.Errorf("%d bit/s, unbooked: %v", got, e.unbooked)
	}
	e.unbooked = true
	delete(s.classes.byName, "x")
	s.Book.Release(bookKey("x"))
	s.completePromises(t.Context())
	if got := s.Book.Promised(at); got != 0 {
		t.Errorf("%d bit/s for a class that is gone", got)
	}
}

// A class above what its links have lost is degraded at once, also while the network is still
// being discovered after a start, and active again when they have it back.
func TestClassAboveCapacity(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("web", nil) // 6 of 10 Mbit/s
	next := x.service()
	t.Cleanup(next.tasks.Stop)
	x.fabric.capacity.Store(5e6)
	if err := next.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Service{"running": x.Service, "started again": next} {
		c, _ := s.Class("web")
		stats, _ := s.Stats("web")
		if c.State != StateDegraded || !strings.Contains(c.Reason, "6000000 bit/s asked, 5000000 of 5000000 available") {
			t.Errorf("%s: %s, %q", name, c.State, c.Reason)
		}
		if stats.State != c.State || stats.Reason != c.Reason {
			t.Errorf("%s: statistics tell %s, %q", name, stats.State, stats.Reason)
		}
	}
	x.fabric.capacity.Store(10e6)
	if c, _ := next.Class("web"); c.State != StateActive || c.Reason != "" {
		t.Errorf("with its capacity back: %s, %q", c.State, c.Reason)
	}
}

// A way is none any more when either of its hosts has moved.
func TestHostsMove(t *testing.T) {
	for _, moved := range []byte{1, 3} {
		s, f, e := placed(t)
		if !s.plan.intact(e) {
			t.Fatal("a way that nothing has happened to")
		}
		f.SetHost(topology.Host{At: host(2).At, IPs: []netip.Addr{end(moved).IP}})
		if s.plan.intact(e) {
			t.Errorf("host %d has moved", moved)
		}
	}
}

// A class that is being moved has its queues at both ways, under a mark that no other
// class has there, and keeps its mark if it can.
func TestQueuesOfBothWays(t *testing.T) {
	s, f, e := placed(t)
	f.capacity.Store(10e6)
	e.userspace = map[openflow.DatapathID]bool{1: true}
	e.leaving = []place{portRef(1, 9)}
	want, _ := s.queues.desiredRoots(1, ovsdb.Bridge{})
	for _, port := range []uint32{2, 9} {
		if q := want[port].Queues; len(q) != 3 || q[1].ID != 4 || q[1].Mark == nil || *q[1].Mark != 7 {
			t.Errorf("port %d: %+v", port, q)
		}
	}
	if m, err := s.classes.freeMark(e, e.held()); err != nil || m != 7 {
		t.Errorf("its own mark is 7, it gets %d, %v", m, err)
	}
	if m, err := s.classes.freeMark(&entry{placement: placement{mark: 7}}, []place{portRef(1, 9)}); err != nil || m == 7 || m == 0 {
		t.Errorf("another class gets %d, %v", m, err)
	}
}

// Flows that differ in their in-port only are one behind the first switch.
func TestOneRuleForTheSamePackets(t *testing.T) {
	c := &Class{}
	for port := range uint32(2) {
		c.Flows = append(c.Flows, Flow{Matches: []openflow.Match{openflow.MustMatch(openflow.InPort(3+port), openflow.EthType(0x0800))}})
	}
	routes := options(row(2, 0), 0, host(1), host(2), false)
	routes = append(routes, options(row(2, 0), 1, host(1), host(2), false)...)
	if p := program(c, routes, 9, 0, nil); len(p.Rules) != 6 { // a way and a mark each
		t.Errorf("%+v", p.Rules)
	}
}

// Probes of a link leave by a queue of their own for as long as its port has one.
func TestProbesHaveTheirQueue(t *testing.T) {
	x := served(t)
	if _, err := x.add("quiet"); err != nil {
		t.Fatal(err)
	}
	for _, at := range []place{portRef(1, 2), portRef(2, 2), portRef(3, 3)} {
		eventually(t, "the network is told the queue", func() bool { return x.fabric.ProbeQueue(at) == probeQueue })
	}
	if q := x.fabric.ProbeQueue(portRef(1, 1)); q != 0 {
		t.Errorf("a port that has no bucket has a queue %d", q)
	}
	x.bases[1].change(func(b *base) { // somebody takes the port's queues away, and forbids new ones
		b.roots[2] = ovsdb.Root{}
		b.broken = true
	})
	eventually(t, "the network is told that it has gone", func() bool { return x.fabric.ProbeQueue(portRef(1, 2)) == 0 })
}
