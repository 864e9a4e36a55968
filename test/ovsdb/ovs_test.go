package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/ovsdb"
)

// topology is one switch with two hosts.
func topology() lab.Topology {
	return lab.Topology{
		Name:     "ovsdb",
		Switches: []lab.Switch{{Name: "s1"}},
		Hosts:    []lab.Host{{Name: "h1"}, {Name: "h2"}},
		Links:    []lab.Link{{A: lab.End{Node: "h1"}, B: lab.End{Node: "s1"}}, {A: lab.End{Node: "h2"}, B: lab.End{Node: "s1"}}},
	}
}

// start runs a client until the test ends.
func start(t *testing.T, target string) *ovsdb.Client {
	t.Helper()
	c, err := ovsdb.New(ovsdb.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) }) // ends with the context
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// connected is a switch, with a client that has read its database.
func connected(t *testing.T) (context.Context, *lab.LiveSwitch, *ovsdb.Client) {
	t.Helper()
	s := lab.New(t, topology()).Switch("s1")
	c := start(t, s.Database())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	if _, err := c.WaitBridge(ctx, s.DPID()); err != nil {
		t.Fatal(err)
	}
	return ctx, s, c
}

// dump is what the database holds, without identifiers, statistics and counters of
// configurations.
func dump(t *testing.T, s *lab.LiveSwitch) string {
	t.Helper()
	var out strings.Builder
	for table, columns := range map[string]string{
		"QoS": "type,other_config,external_ids", "Queue": "dscp,other_config,external_ids", "sFlow": "targets,external_ids", "Port": "name,qos", "Bridge": "name,sflow",
	} {
		text, err := s.Vsctl(t.Context(), "--columns="+columns, "list", table)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n%s\n", table, text)
	}
	lines := strings.Split(out.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// rowOf returns the identifier of the QoS row to which a port refers.
func rowOf(ctx context.Context, t *testing.T, s *lab.LiveSwitch, p ovsdb.Port) string {
	t.Helper()
	id, err := s.Vsctl(ctx, "get", "Port", p.Name, "qos")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(id)
}

// qdiscs is what the kernel holds in the switch's namespace.
func qdiscs(t *testing.T, s *lab.LiveSwitch) string {
	t.Helper()
	out, err := s.Command(t.Context(), "tc", "qdisc", "show").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// root returns a discipline with a tenth of the rate guaranteed to each queue.
func root(rate uint64, ids ...uint32) ovsdb.Root {
	r := ovsdb.Root{Rate: rate}
	for _, id := range ids {
		mark := uint8(3 + 4*id)
		r.Queues = append(r.Queues, ovsdb.Queue{ID: id, MinRate: rate / 10, MaxRate: rate, Priority: uint8(7 - id), Mark: &mark, Tags: map[string]string{"class": fmt.Sprint("c", id)}})
	}
	return r
}

func TestQueuesOnOpenVSwitch(t *testing.T) {
	t.Parallel()
	l := lab.New(t, topology())
	s := l.Switch("s1")
	before, disciplines := dump(t, s), qdiscs(t, s)
	c := start(t, s.Database())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := c.WaitBridge(ctx, s.DPID())
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := b.Port(1); !ok || b.Datapath != ovsdb.Userspace || p.Name == "" || p.QoS != nil {
		t.Fatalf("bridge %+v", b)
	}
	want := map[uint32]ovsdb.Root{1: root(10_000_000, 0, 1, 2), 2: root(10_000_000, 0)}
	for step, change := range []func(){
		func() {},
		func() { want[1] = root(10_000_000, 0, 2, 5) }, // one goes, one comes
		func() { want[2] = root(20_000_000, 0, 1) },    // another rate
		func() { want[1].Queues[1].MinRate = 2_000_000 },
		func() { delete(want, 1) },
	} {
		change()
		done, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want})
		if err != nil || done.Operations == 0 {
			t.Fatalf("step %d: %+v, %v", step, done, err)
		}
		t.Logf("step %d: %d operations in %v", step, done.Operations, done.Took)
		if again, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); err != nil || again.Operations != 0 {
			t.Errorf("step %d, again: %+v, %v", step, again, err)
		}
		holds(t, c, s, want)
	}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{}); err != nil {
		t.Fatal(err)
	}
	if now := dump(t, s); now != before {
		t.Errorf("the database is not as before:\n%s\nbefore:\n%s", now, before)
	}
	if now := qdiscs(t, s); now != disciplines {
		t.Errorf("the kernel is not as before:\n%s\nbefore:\n%s", now, disciplines)
	}
}

// sameQueue reports whether two queues have the same configuration.
func sameQueue(a, b ovsdb.Queue) bool {
	return a.ID == b.ID && a.MinRate == b.MinRate && a.MaxRate == b.MaxRate && a.Priority == b.Priority &&
		reflect.DeepEqual(a.Mark, b.Mark) && maps.Equal(a.Tags, b.Tags)
}

// holds compares what the switch has with what was asked for, by the client's state,
// and by what tc says of the kernel.
func holds(t *testing.T, c *ovsdb.Client, s *lab.LiveSwitch, want map[uint32]ovsdb.Root) {
	t.Helper()
	state, _ := c.State()
	b, _ := state.Bridge(s.DPID())
	for _, p := range b.Ports {
		r, wanted := want[p.Number]
		if !wanted || p.Number == 0 {
			if p.QoS != nil {
				t.Errorf("port %s has %+v", p.Name, p.QoS)
			}
			continue
		}
		if p.QoS == nil || p.QoS.Rate != r.Rate || !slices.EqualFunc(p.QoS.Queues, r.Queues, sameQueue) {
			t.Errorf("port %s: %+v, want %+v", p.Name, p.QoS, r)
		}
		out, err := s.Command(t.Context(), "tc", "class", "show", "dev", p.Name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n := strings.Count(string(out), "class htb"); n != len(r.Queues)+1 {
			t.Errorf("port %s: %d classes for %d queues:\n%s", p.Name, n, len(r.Queues), out)
		}
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	l := lab.New(t, topology())
	s := l.Switch("s1")
	port := func(n uint32) string {
		c := start(t, s.Database())
		b, err := c.WaitBridge(t.Context(), s.DPID())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := b.Port(n)
		return p.Name
	}
	if _, err := s.Vsctl(t.Context(), "--id=@q", "create", "QoS", "type=linux-htb", "other-config:max-rate=5000000", "--", "set", "Port", port(1), "qos=@q"); err != nil {
		t.Fatal(err)
	}
	before := dump(t, s)
	c := start(t, s.Database())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.WaitBridge(ctx, s.DPID()); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: map[uint32]ovsdb.Root{1: root(1_000_000, 0), 2: root(1_000_000, 0), 9: root(1_000_000, 0)}})
	if !errors.Is(err, ovsdb.ErrForeign) || !errors.Is(err, ovsdb.ErrNoPort) {
		t.Fatalf("%v", err)
	}
	state, _ := c.State()
	b, _ := state.Bridge(s.DPID())
	if p, _ := b.Port(2); p.QoS == nil || p.QoS.Owner() != "test" {
		t.Errorf("the other port: %+v", p)
	}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{}); err != nil {
		t.Fatal(err)
	}
	if now := dump(t, s); now != before {
		t.Errorf("the database is not as before:\n%s\nbefore:\n%s", now, before)
	}
}

// A tag stands on the row until it is taken away, and disturbs nobody's plan.
func TestTag(t *testing.T) {
	t.Parallel()
	ctx, s, c := connected(t)
	want := map[uint32]ovsdb.Root{1: root(1_000_000, 0)}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); err != nil {
		t.Fatal(err)
	}
	other := start(t, s.Database())
	b, err := other.WaitBridge(ctx, s.DPID())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := b.Port(1)
	for _, value := range []string{"1:3>0", "1:3>0 2:7>46", ""} {
		if err := other.SetTag(ctx, p, "known", value); err != nil {
			t.Fatal(err)
		}
		for { // until it has come back
			state, changed := c.State()
			b, _ := state.Bridge(s.DPID())
			if p, _ := b.Port(1); p.QoS.Tags["known"] == value {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%q is not seen", value)
			}
		}
		if done, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); err != nil || done.Operations != 0 {
			t.Errorf("%q: %+v, %v", value, done, err)
		}
	}
}

// A database that goes away and comes back is found again, with what was configured.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	ctx, s, c := connected(t)
	want := map[uint32]ovsdb.Root{1: root(10_000_000, 0, 1)}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); err != nil {
		t.Fatal(err)
	}
	if err := s.StopDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	for state, changed := c.State(); state != nil; state, changed = c.State() {
		<-changed
	}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); !errors.Is(err, ovsdb.ErrDown) {
		t.Errorf("without a database: %v", err)
	}
	if err := s.StartDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitBridge(ctx, s.DPID()); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: want}); err != nil || done.Operations != 0 {
		t.Errorf("after the restart: %+v, %v", done, err)
	}
	holds(t, c, s, maps.Clone(want))
}

func TestSFlow(t *testing.T) {
	t.Parallel()
	l := lab.New(t, topology())
	s := l.Switch("s1")
	before := dump(t, s)
	c := start(t, s.Database())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.WaitBridge(ctx, s.DPID()); err != nil {
		t.Fatal(err)
	}
	f := &ovsdb.SFlow{Targets: []string{"127.0.0.1:6343"}, Agent: "lo", Polling: 5, Sampling: 64}
	for i, operations := range []int{3, 0} {
		if done, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{SFlow: f}); err != nil || done.Operations != operations {
			t.Errorf("time %d: %+v, %v", i, done, err)
		}
	}
	f.Sampling = 128
	if done, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{SFlow: f}); err != nil || done.Operations != 1 {
		t.Errorf("change: %+v, %v", done, err)
	}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{}); err != nil {
		t.Fatal(err)
	}
	if now := dump(t, s); now != before {
		t.Errorf("the database is not as before:\n%s\nbefore:\n%s", now, before)
	}
}
