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
)

// both is a switch whose database holds a second bridge, with a manager of both.
type both struct {
	*lab.LiveSwitch
	t        *testing.T
	manager  *Manager
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
	b.manager = NewManager(ManagerOptions{
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
func (b *both) owner(name string, want Wanted) *Owner {
	b.t.Helper()
	o, err := b.manager.Owner(name)
	if err != nil {
		b.t.Fatal(err)
	}
	o.Declare(func(d uint64, _ Bridge) (Wanted, error) {
		if d == second {
			return Wanted{}, nil
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
func (b *both) isDown(ctx context.Context, o *Owner) {
	b.t.Helper()
	for {
		short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
		err := o.Ensure(short, b.DPID(), []uint32{1})
		stop()
		if err == nil && ctx.Err() == nil { // the connection's end has not come yet
			continue
		}
		if !errors.Is(err, ErrDown) {
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
	queues := b.owner("us-queues", Wanted{Queues: map[uint32]Root{1: root(10_000_000, 0, 1), 2: root(10_000_000, 0)}})
	reports := b.owner("us-reports", Wanted{SFlow: &SFlow{Targets: []string{"127.0.0.1:6343"}, Agent: "lo", Sampling: 64}})
	if _, err := b.manager.Owner("us-queues"); err == nil {
		t.Error("a name has two owners")
	}
	b.run()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, o := range []*Owner{queues, reports} {
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
	b.set(ctx, "--id=@q", "create", "Queue", "other-config:max-rate=4000000", "--", "add", "QoS", one.qos, "queues", "9=@q")
	b.set(ctx, "clear", "Bridge", first.Name, "sflow")
	if err := reports.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	if err := queues.Ensure(ctx, b.DPID(), []uint32{1}); err != nil {
		t.Error(err)
	}
	if err := queues.Ensure(ctx, b.DPID(), []uint32{2}); !errors.Is(err, ErrForeign) {
		t.Errorf("at the operator's port: %v", err)
	}
	all = dump(t, b.LiveSwitch)
	for _, want := range []string{"5000000", "4000000", "us-queues", "us-reports"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing:\n%s", want, all)
		}
	}
	b.shared(ctx)

	queues.Declare(Nothing)
	if err := queues.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	all = dump(t, b.LiveSwitch)
	if strings.Contains(all, "us-queues") || !strings.Contains(all, "us-reports") || !strings.Contains(all, "5000000") || !strings.Contains(all, "4000000") {
		t.Errorf("an owner that wants nothing has this left:\n%s", all)
	}
	reports.Declare(Nothing)
	if err := reports.Ensure(ctx, b.DPID(), nil); err != nil {
		t.Error(err)
	}
	b.set(ctx, "clear", "Port", two.Name, "qos", "--", "--all", "destroy", "QoS", "--", "--all", "destroy", "Queue")
	if now := dump(t, b.LiveSwitch); now != before {
		t.Errorf("the database is not as before:\n%s\nbefore:\n%s", now, before)
	}
}

// The database of a switch that stays away is given up, and who waits for it is told; and
// of many that are gone, those that went first.
func TestForgottenSwitches(t *testing.T) {
	up := []uint64{1}
	m := NewManager(ManagerOptions{
		Switches: func() []uint64 { return up },
		Target:   func(uint64) (string, error) { return "unix:/nonexistent/db.sock", nil },
	})
	t.Cleanup(m.tasks.Stop)
	o, err := m.Owner("us")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m.look(now)
	k, err := m.keeper(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- k.ensure(t.Context(), nil) }() // ends with the switch
	known := func(want int, when string) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.switches) != want || len(m.databases) != min(want, 1) {
			t.Errorf("%s: %d switches, %d databases, want %d switches", when, len(m.switches), len(m.databases), want)
		}
	}
	up = nil
	m.look(now)
	up = []uint64{1}
	m.look(now.Add(forgetAfter))
	up = nil
	m.look(now.Add(2 * forgetAfter))
	known(1, "just gone")
	m.look(now.Add(4 * forgetAfter))
	known(0, "long gone")
	if err := <-waited; !errors.Is(err, errEnded) {
		t.Error(err)
	}
	for d := range uint64(3 * keptGone) {
		up = append(up, d+1)
	}
	m.look(now)
	known(3*keptGone, "all there")
	up = nil
	m.look(now)
	known(keptGone, "all gone")
}
