package registry

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
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
