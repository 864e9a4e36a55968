package classes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// No packet is marked before the classifier beside the switch has said that it takes the
// mark off again; a class says so as long as one has not.
func TestMarksAwaitTheClassifier(t *testing.T) {
	x := served(t)
	info, err := x.add("quiet")
	if err != nil || info.State != StateIneffective || !strings.Contains(info.Reason, "no classifier at port 0000000000000001/2") {
		t.Fatalf("%+v, %v", info, err)
	}
	for d, b := range x.bases {
		if q, ok := b.queue(portOf(d)); !ok || q.Mark != nil {
			t.Errorf("switch %d: %+v", d, q)
		}
	}
	for _, b := range x.bases {
		b.classify()
	}
	eventually(t, "the queues are not marked", func() bool {
		marked := 0
		for d, b := range x.bases {
			if q, ok := b.queue(portOf(d)); ok && q.Mark != nil && *q.Mark == *info.Mark {
				marked++
			}
		}
		return marked == len(x.bases)
	})
	x.monitor.observe(nil)
	if now, _ := x.Class("quiet"); now.State != StateActive || now.Reason != "" {
		t.Errorf("%+v", now)
	}
	b := x.bases[2]
	b.change(func(b *base) { b.known[2] = "" }) // its filter is gone
	eventually(t, "packets are still marked", func() bool { q, _ := b.queue(2); return q.Mark == nil })
	x.monitor.observe(nil)
	if now, _ := x.Class("quiet"); now.State != StateActive {
		t.Errorf("one reading is enough: %+v", now)
	}
	x.monitor.observe(nil)
	if now, _ := x.Class("quiet"); now.State != StateIneffective || !strings.Contains(now.Reason, "0000000000000002/2") {
		t.Errorf("%+v", now)
	}
	if kinds := x.published(); !slices.Equal(kinds, []string{"qos.class.added", "qos.class.accepted", "qos.class.ineffective", "qos.class.effective", "qos.class.ineffective"}) {
		t.Errorf("events %v", kinds)
	}
}

// portOf is the port by which the class of these tests leaves a switch.
func portOf(dpid uint64) uint32 {
	if dpid == 3 {
		return 3
	}
	return 2
}

// withClassifiers has classifiers install whatever the databases ask for, until the test ends.
func (x *setting) withClassifiers() {
	x.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, b := range x.bases {
		wg.Go(func() {
			last := ""
			for ctx.Err() == nil {
				_, changed := b.bridge()
				b.mu.Lock()
				now := fmt.Sprint(b.roots)
				b.mu.Unlock()
				if now != last {
					last = now
					b.classify()
					continue
				}
				select {
				case <-ctx.Done():
				case <-changed:
				}
			}
		})
	}
	x.t.Cleanup(func() { cancel(); wg.Wait() })
}

// stored says whether the store holds a class.
func (x *setting) stored(name string) bool {
	_, err := x.store.Get(context.Background(), x.Declared.Prefix+name)
	return err == nil
}

// A class is in the store when it is in the switches, not before: a controller that is
// killed while it provisions one has not promised it to anybody.
func TestStoreComesLast(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	asked := false
	x.rules.OnApply = func(context.Context, string) error {
		asked = true
		if x.stored("late") {
			return errors.New("it is stored before it is there")
		}
		return nil
	}
	if info, err := x.add("late"); err != nil || info.State != StateActive || !asked {
		t.Fatalf("%+v, %v", info, err)
	}
	if !x.stored("late") {
		t.Error("it is not stored")
	}
}

// When the store fails, the class is gone all the same, its name as soon as the store
// lets it go, and whoever asks is told.
func TestStoreFails(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.store.ill.Store(true)
	for _, round := range []string{"refused", "its name is taken"} {
		if _, err := x.add("unlucky"); !errors.Is(err, ErrCleanupPending) {
			t.Errorf("%s: %v", round, err)
		}
		if all := x.Classes(); len(all) != 0 || len(x.rules.Keys()) != 0 || x.Book.Promised(portRef(1, 2)) != 0 {
			t.Errorf("%s: %+v, rules %v", round, all, x.rules.Keys())
		}
		x.placer.retryCleanups(t.Context())
	}
	x.store.ill.Store(false)
	x.placer.retryCleanups(t.Context())
	if _, err := x.add("unlucky"); err != nil {
		t.Error(err)
	}
	x.store.ill.Store(true)
	if err := x.Declared.Remove(t.Context(), "unlucky", 0); !errors.Is(err, errSick) {
		t.Errorf("deleted without the store: %v", err)
	}
	if now, ok := x.Class("unlucky"); !ok || now.State != StateActive || len(x.rules.Keys()) != 1 {
		t.Errorf("%+v", now)
	}
}

// Rules that a switch does not give back are asked for until it does; the name is free then.
func TestRulesStay(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	if _, err := x.add("sticky"); err != nil {
		t.Fatal(err)
	}
	x.rules.OnRemove = func(string) error { return network.ErrRefused }
	if err := x.Declared.Remove(t.Context(), "sticky", 0); err != nil || x.stored("sticky") {
		t.Errorf("deleted: %v", err)
	}
	x.placer.retryCleanups(t.Context())
	if _, err := x.add("sticky"); !errors.Is(err, ErrCleanupPending) {
		t.Errorf("its rules are there still: %v", err)
	}
	x.rules.OnRemove = nil
	x.placer.retryCleanups(t.Context())
	if n := len(x.rules.Keys()); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	if _, err := x.add("sticky"); err != nil {
		t.Error(err)
	}
}

// shortcut joins the first switch with the last.
func (x *setting) shortcut() {
	a, b := portRef(1, 9), portRef(3, 9)
	t := x.fabric.Topology()
	links := append(slices.Clone(t.Links), topology.Link{From: a, To: b}, topology.Link{From: b, To: a})
	x.fabric.SetTopology(topology.New(t.Version+1, t.Switches, links))
}

// A class that cannot be moved stays where it is, with its rules, its promise and its
// queues; when it can, nothing is left behind.
func TestMoveFails(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	if _, err := x.add("steady"); err != nil {
		t.Fatal(err)
	}
	x.shortcut()
	e := x.classes.get("steady")
	x.rules.OnApply = func(context.Context, string) error { return errors.New("the switch does not want it") }
	x.placer.replace(t.Context(), e)
	at := func(want string, on, off topology.PortRef) {
		t.Helper()
		if x.Book.Promised(on) == 0 || x.Book.Promised(off) != 0 {
			t.Errorf("%s: %d bit/s are promised at %v, %d at %v", want, x.Book.Promised(on), on, x.Book.Promised(off), off)
		}
		if p := portsOf(e.routes); !slices.Contains(p, on) || slices.Contains(p, off) || len(e.leaving) != 0 {
			t.Errorf("%s: it leaves by %v, and %v", want, p, e.leaving)
		}
		if _, ok := x.bases[1].queue(on.Port); !ok {
			t.Errorf("%s: no queue at %v", want, on)
		}
		if _, ok := x.bases[1].queue(off.Port); ok {
			t.Errorf("%s: a queue at %v", want, off)
		}
	}
	at("not moved", portRef(1, 2), portRef(1, 9))
	if e.state != StateDegraded {
		t.Errorf("it is %s: %s", e.state, e.reason)
	}
	x.rules.OnApply = func(context.Context, string) error { return nil }
	x.placer.replace(t.Context(), e)
	at("moved", portRef(1, 9), portRef(1, 2))
}

// Many classes are moved at once, but not all.
func TestMovesAtOnce(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	for i := range 2 * maxMoves {
		class := request(t, fmt.Sprint("c", i), 7000+i)
		class.MinRate = 100_000
		if _, err := x.Add(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	x.shortcut()
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	x.rules.OnApply = func(context.Context, string) error {
		mu.Lock()
		if now++; now > most {
			if most = now; most == maxMoves {
				close(full)
			}
		}
		mu.Unlock()
		defer func() { mu.Lock(); now--; mu.Unlock() }()
		select {
		case <-full:
			return nil
		case <-time.After(30 * time.Second):
			return errors.New("the others are not moved meanwhile")
		}
	}
	for _, e := range x.classes.byName {
		e.state = StateDegraded
	}
	x.replaceAll(t.Context())
	if most != maxMoves {
		t.Errorf("%d at once, want %d", most, maxMoves)
	}
	for _, c := range x.Classes() {
		if c.State != StateActive {
			t.Errorf("%s is %s: %s", c.Name, c.State, c.Reason)
		}
	}
}

// Ports get a bucket when a class needs it, or all when the switch connects, as it is
// configured; and keep it while they are down, when they may tell no speed.
func TestBuckets(t *testing.T) {
	s, f, e := placed(t)
	f.capacity.Store(10e6)
	ports := func(now ovsdb.Bridge) []uint32 {
		want, _ := s.queues.desiredRoots(1, now)
		var out []uint32
		for n, r := range want {
			if r.Rate != 10e6 || r.Queues[0].MaxRate != 10e6 {
				t.Errorf("port %d: %+v", n, r)
			}
			out = append(out, n)
		}
		slices.Sort(out)
		return out
	}
	if got := ports(ovsdb.Bridge{}); !slices.Equal(got, []uint32{2}) {
		t.Errorf("with a class at port 2: %v", got)
	}
	s.queues.OnConnect = true
	if got := ports(ovsdb.Bridge{}); !slices.Equal(got, []uint32{1, 2, 3, 9}) {
		t.Errorf("on connect: %v", got)
	}
	delete(s.classes.byName, e.class.Name)
	s.queues.OnConnect = false
	if got := ports(ovsdb.Bridge{}); len(got) != 0 {
		t.Errorf("nobody needs queues: %v", got)
	}
	s.queues.OnConnect = true
	f.capacity.Store(0)
	had := &ovsdb.QoS{Tags: map[string]string{ovsdb.OwnerTag: DatabaseOwner}, Root: ovsdb.Root{Rate: 10e6}}
	now := ovsdb.Bridge{DPID: uint64(openflow.DatapathID(1)), Ports: []ovsdb.Port{{Number: 3, QoS: had}, {Number: 9, QoS: &ovsdb.QoS{Root: had.Root}}}}
	if got := ports(now); !slices.Equal(got, []uint32{3}) {
		t.Errorf("without speeds: %v", got)
	}
}
