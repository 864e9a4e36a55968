package registry_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// faulty is a store whose writes fail on demand, before or after they were made; the caller cannot
// distinguish the two.
type faulty struct {
	store.Store
	mu            sync.Mutex
	before, after bool
	during        func() // called while a write is under way
	writes        int
}

var errStore = errors.New("the disk is on fire")

func (f *faulty) fail(before, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faulty) write(do func() error) error {
	f.mu.Lock()
	before, after, during := f.before, f.after, f.during
	f.writes++
	f.mu.Unlock()
	if during != nil {
		during()
	}
	if before {
		return errStore
	}
	if err := do(); err != nil || !after {
		return err
	}
	return errStore
}

// Apply implements store.Store.
func (f *faulty) Apply(ctx context.Context, ops ...store.Op) error {
	return f.write(func() error { return f.Store.Apply(ctx, ops...) })
}

// bench is a registry with a store that outlives it.
type bench struct {
	*registry.Registry
	*registry.Lessor
	t     testing.TB
	ctx   context.Context
	clock *clock
	store *faulty
	end   func() // of the registry that runs
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, ctx: t.Context(), clock: &clock{at: start}, store: &faulty{Store: memstore.New()}}
	b.run()
	return b
}

// run starts a registry on the store.
func (b *bench) run() {
	b.t.Helper()
	b.Registry = registry.New(registry.Options{Store: b.store, Clock: b.clock.now, Log: slog.New(slog.DiscardHandler)})
	b.Lessor = b.Registry.Lessor
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.ctx))
	if err := b.Load(ctx, registry.Definitions{}); err != nil {
		cancel()
		b.t.Fatal(err)
	}
	r, done := b.Registry, make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	b.end = func() { cancel(); <-done }
	b.t.Cleanup(b.end)
}

// PutClass declares a class as the API does; the following functions do the same for other
// declarations.
func (b *bench) PutClass(ctx context.Context, c registry.Class) error {
	return b.ClassItems.Put(ctx, c.Name, c, 0)
}

func (b *bench) PutPool(ctx context.Context, p registry.Pool) error {
	return b.PoolItems.Put(ctx, p.Name, p, 0)
}

func (b *bench) PutDevice(ctx context.Context, d registry.Device) error {
	return b.DeviceItems.Put(ctx, d.ID, d, 0)
}

func (b *bench) DeleteClass(ctx context.Context, name string) error {
	return b.ClassItems.Remove(ctx, name, 0)
}

func (b *bench) DeletePool(ctx context.Context, name string) error {
	return b.PoolItems.Remove(ctx, name, 0)
}

func (b *bench) DeleteDevice(ctx context.Context, id string) error {
	return b.DeviceItems.Remove(ctx, id, 0)
}

// restart restarts the registry as after a crash.
func (b *bench) restart() {
	b.t.Helper()
	b.end()
	b.run()
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) fails(err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Fatalf("error %v, want one that is %q", err, want)
	}
}

func (b *bench) expire() []registry.Lease {
	b.t.Helper()
	ended, err := b.Expire(b.ctx, b.clock.now())
	b.must(err)
	return ended
}

// Grant reserves a lease and commits it at once.
func (b *bench) Grant(ctx context.Context, id string, c registry.Claim) (registry.Lease, error) {
	v, err := b.Reserve(id, c)
	if err != nil {
		return registry.Lease{}, err
	}
	return v.Lease, v.Commit(ctx)
}

func (b *bench) grant(id string) registry.Lease {
	b.t.Helper()
	ip, err := b.Offer(id, netip.Addr{}, network.PortRef{})
	b.must(err)
	l, err := b.Grant(b.ctx, id, registry.Claim{IP: ip})
	b.must(err)
	return l
}

func (b *bench) device(id string, m ...byte) registry.Device {
	b.t.Helper()
	d := registry.Device{ID: id, Pool: "main"}
	for _, n := range m {
		d.MACs = append(d.MACs, mac(n))
	}
	b.must(b.PutDevice(b.ctx, d))
	return d
}

func (b *bench) pool(f func(*registry.Pool)) registry.Pool {
	b.t.Helper()
	p := mainPool()
	if f != nil {
		f(&p)
	}
	b.must(b.PutPool(b.ctx, p))
	return p
}

// mainPool has three addresses.
func mainPool() registry.Pool {
	return registry.Pool{
		Name: "main", Prefix: prefix("10.8.0.0/24"), First: ip(10), Last: ip(12),
		Gateway: ip(1), LeaseTime: time.Minute,
	}
}

// movedPool is the main pool in another network.
func movedPool() registry.Pool {
	p := mainPool()
	p.Prefix, p.First, p.Last, p.Gateway = prefix("10.9.0.0/24"), netip.Addr{}, netip.Addr{}, netip.MustParseAddr("10.9.0.1")
	return p
}

func mac(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, n} }

func ip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 8, 0, n}) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
