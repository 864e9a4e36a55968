package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Options holds what a Registry needs.
type Options struct {
	Store store.Store
	Clock func() time.Time // nil for time.Now
	Log   *slog.Logger
	// Publish publishes changes of what is declared; it may be nil.
	Publish func(kind string, attrs any)
	// Changed is called after changes of what is declared: with the names of the devices that have
	// changed, or with none if something else has. The change waits for its return.
	Changed func(ctx context.Context, devices []string)
}

// Registry holds classes, pools, devices and leases. Load must be called before Run; the other
// methods, and those of Lessor, may be called concurrently. Callers must not modify what they
// return.
//
// Three locks are taken in this order: admin is held while the set of devices changes,
// record.write while one device or its lease changes, both over the write to the store. book.mu
// guards the memory and is never held over a write. A change claims what it needs under book.mu,
// is written, and then becomes visible under book.mu. So changes of different devices are written
// concurrently, and readers never wait for the store.
type Registry struct {
	// Declared holds what operators declare.
	Declared
	// Lessor leases addresses to devices.
	Lessor *Lessor

	book    *book
	store   store.Store
	log     *slog.Logger
	changed func(context.Context, []string)

	admin sync.Mutex
}

// New returns an empty registry; Load fills it from the store.
func New(o Options) *Registry {
	r := &Registry{book: newBook(o.Clock), store: o.Store, log: cmp.Or(o.Log, slog.Default()), changed: o.Changed}
	r.Lessor = &Lessor{book: r.book, store: o.Store}
	if r.changed == nil {
		r.changed = func(context.Context, []string) {}
	}
	r.Declared = r.declare(o)
	return r
}

// Run runs the collections of what is declared until ctx ends, which must be that of Load.
func (r *Registry) Run(ctx context.Context) {
	running := tasks.New()
	defer running.Stop()
	stop := context.AfterFunc(ctx, running.Cancel)
	defer stop()
	running.Start(r.ClassItems.Run)
	running.Start(r.PoolItems.Run)
	r.DeviceItems.Run(ctx)
}

// Load reads everything from the store and applies the configured definitions to it. It is called
// once, before any other method; ctx must be that of Run. If stored data conflict, the
// configuration takes precedence over what the API has declared, and that over leases. The rest is
// logged and not in force.
func (r *Registry) Load(ctx context.Context, configured Definitions) error {
	guests, err := store.ListJSON[Device](ctx, r.store, keyGuest)
	if err != nil {
		return fmt.Errorf("read the undeclared devices: %w", err)
	}
	leases, err := store.ListJSON[Lease](ctx, r.store, keyLease)
	if err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	declined, err := store.ListJSON[decline](ctx, r.store, keyDecline)
	if err != nil {
		return fmt.Errorf("read the declined addresses: %w", err)
	}
	r.loadGuests(guests)
	// Devices first: the pools and classes that they use are kept.
	if err := r.DeviceItems.Load(ctx, configured.Devices); err != nil {
		return err
	}
	if err := r.PoolItems.Load(ctx, configured.Pools); err != nil {
		return err
	}
	if err := r.ClassItems.Load(ctx, configured.Classes); err != nil {
		return err
	}
	r.book.mu.Lock()
	for _, x := range r.ClassItems.Items() {
		r.book.classes[x.Name] = x.Value
	}
	for _, x := range r.PoolItems.Items() {
		r.book.addPool(x.Value.withDefaults())
	}
	r.book.mu.Unlock()
	for _, first := range []bool{true, false} {
		for _, x := range r.DeviceItems.Items() {
			if x.Configured == first {
				r.registerDeclared(ctx, x.Value)
			}
		}
	}
	return r.loadAddresses(ctx, leases, declined)
}

// loadGuests reads devices that nobody declared into memory.
func (r *Registry) loadGuests(guests map[string]Device) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(guests)) {
		d := guests[id]
		if slices.ContainsFunc(d.MACs, func(m openflow.MAC) bool { return r.book.macs[m] != nil }) {
			r.log.Error("a stored device is ignored: another has its MAC address", "device", id)
			continue
		}
		if d.IP.IsValid() {
			r.book.claim(d.IP, id, forever)
		}
		r.book.addDevice(&record{stored: true}, d)
	}
}

// loadAddresses reads leases, active ones first. A lease whose address belongs to another device,
// or whose device no longer exists, is ended.
func (r *Registry) loadAddresses(ctx context.Context, leases map[string]Lease, declined map[string]decline) error {
	r.book.mu.Lock()
	var over []string
	for _, released := range []bool{false, true} {
		for _, id := range slices.Sorted(maps.Keys(leases)) {
			if l := leases[id]; l.Released == released && !r.book.loadLease(id, l) {
				over = append(over, id)
			}
		}
	}
	for text, q := range declined {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			r.log.Error("a stored declined address cannot be parsed", "address", text, "error", err)
			continue
		}
		r.book.declined[ip] = q
		a := r.book.address(ip)
		a.quarantined = q.Until
		reorder(a)
	}
	r.book.mu.Unlock()
	for _, id := range over {
		r.log.Warn("a stored lease is ended: its device no longer exists, or another device has its address", "device", id, "ip", leases[id].IP)
		if err := write(ctx, r.store, store.OpDelete(keyLease+id)); err != nil {
			return fmt.Errorf("end the lease of device %q: %w", id, err)
		}
	}
	return nil
}

// loadLease reads a lease into memory, and reports whether it is consistent with the rest. A lease
// that has ended is remembered if no other device has got the address since.
func (b *book) loadLease(id string, l Lease) bool {
	rec := b.devices[id]
	if rec == nil {
		return false
	}
	rec.signed = l.Signed
	if !l.IP.IsValid() {
		return true
	}
	if a := b.addrs[l.IP]; a != nil && a.device != id {
		return l.Released
	}
	rec.lease = l
	if !l.Released {
		b.claim(l.IP, id, forever)
		return true
	}
	now := b.now()
	b.claim(l.IP, id, now)
	b.rest(l.IP, id, now)
	return true
}

// Keys in the store.
const (
	keys       = "handover/"
	keyClass   = keys + "classes/"
	keyPool    = keys + "pools/"
	keyDevice  = keys + "devices/"
	keyGuest   = keys + "guests/" // devices that nobody declared
	keyLease   = keys + "leases/"
	keyDecline = keys + "declined/"
)

// storeTimeout bounds each write.
const storeTimeout = 5 * time.Second

// put returns the operation that stores v as JSON. All values that are stored have a JSON form.
func put(key string, v any) store.Op {
	b, _ := json.Marshal(v)
	return store.OpPut(key, b)
}

// write writes to the store, all or nothing, within a bounded time. The caller holds no locks
// except admin and those of records.
func write(ctx context.Context, st store.Store, ops ...store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return st.Apply(ctx, ops...)
}

// Errors of this package wrap one of these; tell them apart with errors.Is.
var (
	// ErrInvalid says that an input was wrong by itself. Nothing was changed.
	ErrInvalid = errors.New("not valid")
	// ErrConflict says that an input conflicts with what is registered. Nothing was changed.
	ErrConflict = errors.New("conflicts with what is registered")
	// ErrUnknown says that there is no such device, pool or class.
	ErrUnknown = errors.New("not registered")
	// ErrExhausted says that a pool has no free address.
	ErrExhausted = errors.New("no free address in the pool")
	// ErrNotYours says that the device may not have the address.
	ErrNotYours = errors.New("not an address for this device")
	// ErrTaken says that another device has the address, or had it until just now.
	ErrTaken = errors.New("another device has the address")
	// ErrQuarantined says that the address was declined a short time ago.
	ErrQuarantined = errors.New("the address was declined by a client")
	// ErrNoLease says that the device holds no address.
	ErrNoLease = errors.New("the device has no lease")
	// ErrFull says that a bound on what is stored has been reached.
	ErrFull = errors.New("too many")
)

// refusal returns an error for a refused input, with all its faults, or nil if there are none.
// kind is ErrInvalid or ErrConflict.
func refusal(f kit.Faults, kind error, what, name string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s %q is %w: %w", what, name, kind, f)
}
