package registry

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Options is what a Registry works with.
type Options struct {
	Store store.Store
	Clock func() time.Time // nil for the usual one
	Log   *slog.Logger
	// Publish tells of what was declared; it may be nil.
	Publish func(kind string, attrs any)
	// Changed does what follows from changes of what is declared: of devices, by their
	// names, or of others if there are none. Whoever made a change waits for it.
	Changed func(ctx context.Context, devices []string)
}

// Registry keeps classes, pools, devices and leases. Load it, then have it run; its other
// methods may be called from many goroutines. What they return is not to be modified.
//
// Three locks, taken in this order: admin is held through a change of which devices there
// are, record.write through a change of one device or its lease, both over the write to
// the store; mu guards the memory and is never held over a write. A change claims what it
// needs under mu, is written, and becomes visible under mu, so changes of different devices
// are written at the same time and nobody waits for the store to read.
type Registry struct {
	// Declared are changed by operators.
	Declared

	st      store.Store
	now     func() time.Time
	log     *slog.Logger
	changed func(context.Context, []string)

	admin sync.Mutex

	mu      sync.RWMutex
	classes map[string]Class
	pools   map[string]*pool
	devices map[string]*record
	macs    map[openflow.MAC]*record
	addrs   map[netip.Addr]*address
	// declined has the addresses in quarantine, with who declined them.
	declined map[netip.Addr]decline
	// pending has the MACs of the visitor that is being registered.
	pending []openflow.MAC
	count   struct{ learned, unleased, visitors int }
}

type pool struct {
	Pool
	allocator
	// coming is what the pool is about to be, while that is written.
	coming *Pool
}

// record is a device with what it has.
type record struct {
	// write is held by whoever changes the device or its lease.
	write sync.Mutex

	// The rest is guarded by Registry.mu.
	device Device
	// lease has no address if the device has none, or lost it to somebody else.
	lease Lease
	// offer is the address that was offered last; the claim to it may be over.
	offer netip.Addr
	// reserved is the address of the lease that is being written.
	reserved netip.Addr
	// asked is the port where a device that was learned last asked for an address.
	asked network.PortRef
	// stored is unset while a device that was learned has never had a lease: it is
	// in memory only.
	stored bool
	// unwritten says that the lease has more time than the store knows of.
	unwritten bool
	gone      bool
	// idle is when the device last came to have no lease.
	idle time.Time
	// signed is the greatest Lease.Signed the device ever had.
	signed time.Time
}

// addresses are those that the device is bound to, has, and is about to have.
func (rec *record) addresses() (out []netip.Addr) {
	held := netip.Addr{}
	if rec.holds() {
		held = rec.lease.IP
	}
	for _, ip := range []netip.Addr{rec.device.IP, held, rec.reserved} {
		if ip.IsValid() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// holds says whether the device has an address by a lease that nobody has ended.
func (rec *record) holds() bool { return rec.lease.IP.IsValid() && !rec.lease.Released }

// decline is an address in quarantine.
type decline struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// New returns an empty registry; Load fills it from the store.
func New(o Options) *Registry {
	r := &Registry{
		st: o.Store, now: o.Clock, log: cmp.Or(o.Log, slog.Default()), changed: o.Changed,
		classes:  make(map[string]Class),
		pools:    make(map[string]*pool),
		devices:  make(map[string]*record),
		macs:     make(map[openflow.MAC]*record),
		addrs:    make(map[netip.Addr]*address),
		declined: make(map[netip.Addr]decline),
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.changed == nil {
		r.changed = func(context.Context, []string) {}
	}
	r.Declared = r.declare(o)
	return r
}

// Run follows what is declared until ctx, which is to be that of Load, ends.
func (r *Registry) Run(ctx context.Context) {
	running := tasks.New()
	defer running.Stop()
	stop := context.AfterFunc(ctx, running.Cancel)
	defer stop()
	running.Start(r.ClassItems.Run)
	running.Start(r.PoolItems.Run)
	r.DeviceItems.Run(ctx)
}
