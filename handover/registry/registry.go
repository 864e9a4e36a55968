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
// methods, and those of Lessor, may be called from many goroutines. What they return is not
// to be modified.
//
// Three locks, taken in this order: admin is held through a change of which devices there
// are, record.write through a change of one device or its lease, both over the write to
// the store; book.mu guards the memory and is never held over a write. A change claims what
// it needs under book.mu, is written, and becomes visible under it, so changes of different
// devices are written at the same time and nobody waits for the store to read.
type Registry struct {
	// Declared are changed by operators.
	Declared
	// Lessor gives addresses to devices.
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
