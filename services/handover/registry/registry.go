package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/store"
)

// Options holds what a Registry needs.
type Options struct {
	Store store.Store
	Clock func() time.Time // nil for time.Now
	Log   *slog.Logger
	// Publish publishes changes of what is declared; it may be nil.
	Publish func(kind string, attrs any)
	// Changed is called after changes of what is declared. devices names the changed devices; it is
	// empty if a pool has changed. The change is not complete before Changed has returned.
	Changed func(ctx context.Context, devices []string)
}

// Registry holds classes, pools, devices and leases. Load must be called before Run; the other
// methods, and those of Lessor, may be called concurrently. Callers must not modify returned values.
//
// Three locks are taken in this order: admin, record.write, book.mu. admin is held while the set of
// devices changes, and record.write while one device or its lease changes. Both stay held during the
// write to the store. book.mu guards the memory and is never held during a write. A change reserves the
// addresses that it needs under book.mu, is written, and then becomes visible under book.mu. So changes
// of different devices are written concurrently, and readers never wait for the store.
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

// Run runs the collections of declared items until ctx ends. ctx must be that of Load.
func (r *Registry) Run(ctx context.Context) {
	running := tasks.New()
	defer running.Stop()
	stop := context.AfterFunc(ctx, running.Cancel)
	defer stop()
	running.Start(r.ClassItems.Run)
	running.Start(r.PoolItems.Run)
	r.DeviceItems.Run(ctx)
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
	// ErrInvalid means that an input was wrong by itself. Nothing was changed.
	ErrInvalid = errors.New("not valid")
	// ErrConflict means that an input conflicts with what is registered. Nothing was changed.
	ErrConflict = errors.New("conflicts with what is registered")
	// ErrUnknown means that there is no such device, pool or class.
	ErrUnknown = errors.New("not registered")
	// ErrExhausted means that a pool has no free address.
	ErrExhausted = errors.New("no free address in the pool")
	// ErrNotYours means that the device may not have the address.
	ErrNotYours = errors.New("not an address for this device")
	// ErrTaken means that another device has the address, or had it until just now.
	ErrTaken = errors.New("another device has the address")
	// ErrQuarantined means that the address was declined a short time ago.
	ErrQuarantined = errors.New("the address was declined by a client")
	// ErrNoLease means that the device holds no address.
	ErrNoLease = errors.New("the device has no lease")
	// ErrFull means that a bound on what is stored has been reached.
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
