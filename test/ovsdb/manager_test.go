package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/ovsdb"
)

// both is a switch whose database holds a second bridge, with a manager of both.
type both struct {
	*lab.LiveSwitch
	t        *testing.T
	manager  *ovsdb.Manager
	switches []uint64
}

// second is the datapath identifier of the second bridge.
const second = 0xb2

func manage(t *testing.T) *both {
	t.Helper()
	s := lab.New(t, topology()).Switch("s1")
	if _, err := s.Vsctl(t.Context(), "add-br", "br-second", "--", "set", "Bridge", "br-second", "datapath_type=netdev", fmt.Sprintf("other-config:datapath-id=%016x", second)); err != nil {
		t.Fatal(err)
	}
	b := &both{LiveSwitch: s, t: t, switches: []uint64{s.DPID(), second}}
	b.manager = ovsdb.NewManager(ovsdb.ManagerOptions{
		Switches: func() []uint64 { return b.switches },
		Target:   func(uint64) (string, error) { return s.Database(), nil },
	})
	return b
}

// run runs the manager until the test ends.
func (b *both) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.manager.Run(ctx) }) // ends with the context
	b.t.Cleanup(func() { cancel(); wg.Wait() })
}

// owner wants the same of the first bridge always, and nothing of the second.
func (b *both) owner(name string, want ovsdb.Wanted) *ovsdb.Owner {
	b.t.Helper()
	o, err := b.manager.Owner(name)
	if err != nil {
		b.t.Fatal(err)
	}
	o.Declare(func(d uint64, _ ovsdb.Bridge) (ovsdb.Wanted, error) {
		if d == second {
			return ovsdb.Wanted{}, nil
		}
		return want, nil
	})
	return o
}

// shared fails unless the database serves ovs-vswitchd and the manager's one connection, as
// soon as those that ovs-vsctl has made are gone.
func (b *both) shared(ctx context.Context) {
	b.t.Helper()
	control := filepath.Join(filepath.Dir(strings.TrimPrefix(b.Database(), "unix:")), "ovsdb.ctl")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := b.Command(ctx, "ovs-appctl", "-t", control, "memory/show").CombinedOutput()
		if strings.Contains(string(out), "sessions:2") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("want 2 sessions: %v: %s", err, out)
		}
	}
}

func (b *both) set(ctx context.Context, args ...string) {
	b.t.Helper()
	if out, err := b.Vsctl(ctx, args...); err != nil {
		b.t.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
}

// isDown waits until an owner has noticed that the database is away, and says so.
func (b *both) isDown(ctx context.Context, o *ovsdb.Owner) {
	b.t.Helper()
	for {
		short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
		err := o.Ensure(short, b.DPID(), []uint32{1})
		stop()
		if err == nil && ctx.Err() == nil { // the connection's end has not come yet
			continue
		}
		if !errors.Is(err, ovsdb.ErrDown) {
			b.t.Errorf("without a database: %v", err)
		}
		return
	}
}

// Two owners have what they want of two bridges by one connection. What one of them stops
// to want goes, and nothing of the other's, or of an operator's; and when the database has
// been away, what is missing is made again and what an operator has made stays.
func TestOwnersOfOneDatabase(t *testing.T) {
	t.Parallel()
	b := manage(t)
	before := dump(t, b.LiveSwitch)
	queues := b.owner("us-queues", ovsdb.Wanted{Queues: map[uint32]ovsdb.Root{1: root(10_000_000, 0, 1), 2: root(10_000_000, 0)}})
	reports := b.owner("us-reports", ovsdb.Wanted{SFlow: &ovsdb.SFlow{Targets: []string{"127.0.0.1:6343"}, Agent: "lo", Sampling: 64}})
	if _, err := b.manager.Owner("us-queues"); err == nil {
		t.Error("a name has two owners")
	}
	b.run()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, o := range []*ovsdb.Owner{queues, reports} {
		if err := errors.Join(o.Ensure(ctx, b.DPID(), []uint32{1, 2}), o.Ensure(ctx, second, nil)); err != nil {
			t.Fatal(err)
		}
	}
	all := dump(t, b.LiveSwitch)
	if strings.Count(all, "us-queues") != 5 || strings.Count(all, "us-reports") != 1 {
		t.Errorf("the database has not what the owners want:\n%s", all)
	}
	b.shared(ctx)

	first, _ := queues.Bridge(b.DPID())
	one, _ := first.Port(1)
	two, _ := first.Port(2)
	if err := b.StopDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	b.isDown(ctx, queues)
	if err := b.StartDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	b.set(ctx, "--id=@q", "create", "QoS", "type=linux-htb", "other-config:max-rate=5000000", "--", "set", "Port", two.Name, "qos=@q")
	b.set(ctx, "--id=@q", "create", "Queue", "other-config:max-rate=4000000", "--", "add", "QoS", rowOf(ctx, b.t, b.LiveSwitch, one), "queues", "9=@q")
	b.set(ctx, "clear", "Bridge", first.Name, "sflow")
	if err := reports.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	if err := queues.Ensure(ctx, b.DPID(), []uint32{1}); err != nil {
		t.Error(err)
	}
	if err := queues.Ensure(ctx, b.DPID(), []uint32{2}); !errors.Is(err, ovsdb.ErrForeign) {
		t.Errorf("at the operator's port: %v", err)
	}
	all = dump(t, b.LiveSwitch)
	for _, want := range []string{"5000000", "4000000", "us-queues", "us-reports"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing:\n%s", want, all)
		}
	}
	b.shared(ctx)

	queues.Declare(ovsdb.Nothing)
	if err := queues.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	all = dump(t, b.LiveSwitch)
	if strings.Contains(all, "us-queues") || !strings.Contains(all, "us-reports") || !strings.Contains(all, "5000000") || !strings.Contains(all, "4000000") {
		t.Errorf("an owner that wants nothing has this left:\n%s", all)
	}
	reports.Declare(ovsdb.Nothing)
	if err := reports.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	b.set(ctx, "clear", "Port", two.Name, "qos", "--", "--all", "destroy", "QoS", "--", "--all", "destroy", "Queue")
	if now := dump(t, b.LiveSwitch); now != before {
		t.Errorf("the database is not as before:\n%s\nbefore:\n%s", now, before)
	}
}

// TestRemovedQueuesComeBack checks that queues and sFlow which another program removes from the
// database, or changes there, are restored without a request of their owner.
func TestRemovedQueuesComeBack(t *testing.T) {
	t.Parallel()
	b := manage(t)
	owner := b.owner("rq-owner", ovsdb.Wanted{
		Queues: map[uint32]ovsdb.Root{1: root(10_000_000, 0, 1)},
		SFlow:  &ovsdb.SFlow{Targets: []string{"127.0.0.1:6343"}, Agent: "lo", Sampling: 64},
	})
	b.run()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := owner.Ensure(ctx, b.DPID(), []uint32{1}); err != nil {
		t.Fatal(err)
	}
	bridge, _ := owner.Bridge(b.DPID())
	port, _ := bridge.Port(1)
	restored := func(what string) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			all := dump(t, b.LiveSwitch)
			if strings.Count(all, "rq-owner") == 4 && strings.Contains(all, "10000000") && !strings.Contains(all, `"777"`) {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: it is not restored:\n%s", what, all)
			}
		}
	}
	restored("before anybody disturbs it")
	b.set(ctx, "set", "QoS", rowOf(ctx, t, b.LiveSwitch, port), "other-config:max-rate=777")
	restored("the rate was changed")
	b.set(ctx, "clear", "Port", port.Name, "qos", "--", "--all", "destroy", "QoS", "--", "--all", "destroy", "Queue", "--", "clear", "Bridge", bridge.Name, "sflow")
	restored("queues and sFlow were removed")
}
