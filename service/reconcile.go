package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// reconcileDebounce is how long changes of the network are collected before they are
	// looked at, reconcileEvery how often all items are looked at without a cause.
	reconcileDebounce = 50 * time.Millisecond
	reconcileEvery    = 5 * time.Second
	// reconcileTimeout bounds the work on one item, reconcileAtOnce how many there are.
	reconcileTimeout = 5 * time.Second
	reconcileAtOnce  = 16
)

// Reconciler is a Collection whose items are rules in the network. For each item Program
// says which, from what is so now; the rest follows: rules are written when the item or the
// network has changed, what fails is tried again, and what is not declared is removed. Items
// are worked on side by side, each for five seconds at most.
//
// Call Run; it loads the collection and runs it, too. Have Wake called when the network
// changes.
type Reconciler[T any] struct {
	*Collection[T]
	// Program says which rules an item is. It may be called for several items at once, and
	// is told by ctx when to give up.
	Program func(ctx context.Context, x Item[T]) (network.Program, error)
	Ledger  Ledger

	loop Loop

	mu    sync.Mutex
	works map[string]*work
}

// work is what is done for one item. It is there until nothing of the item is left.
type work struct {
	doing sync.Mutex // held while it is done
	err   error      // why the network is not as declared; the reconciler's lock guards it
}

// NewReconciler returns one without items. Changed of the options is the reconciler's own.
func NewReconciler[T any](o Options[T], l Ledger, program func(context.Context, Item[T]) (network.Program, error)) *Reconciler[T] {
	r := &Reconciler[T]{Program: program, Ledger: l, loop: NewLoop(), works: map[string]*work{}}
	o.Changed = func(ctx context.Context, changes []Change[T]) {
		names := make([]string, len(changes))
		for i, c := range changes {
			names[i] = c.Name
		}
		r.reconcile(ctx, names)
	}
	r.Collection = NewCollection(o)
	return r
}

// Loaded is closed when what the store has is there.
func (r *Reconciler[T]) Loaded() <-chan struct{} { return r.loaded }

// Wake has all items looked at soon. It does not block.
func (r *Reconciler[T]) Wake() { r.loop.Wake() }

// Run works until ctx ends; configured are the items of the configuration, nil if there
// cannot be any. Rules stay in the switches.
func (r *Reconciler[T]) Run(ctx context.Context, configured map[string]T) error {
	if err := r.Load(ctx, configured); err != nil {
		return err
	}
	r.all(ctx)
	r.Ledger.Ready()
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { r.Collection.Run(ctx) })
	r.loop.Run(ctx, reconcileDebounce, reconcileEvery, r.all)
	return nil
}

// Condition is what answers show of an item beside what it declares.
type Condition struct {
	Origin  string `json:"origin" enum:"file,api" doc:"Where it stands, and is changed: the configuration file or the API"`
	Trouble string `json:"trouble,omitempty" doc:"Why the network does not do it; it is tried again"`
}

// Condition is that of an item now.
func (r *Reconciler[T]) Condition(x Item[T]) Condition {
	c := Condition{Origin: api.Origin(x.Configured)}
	if err := r.Trouble(x.Name); err != nil {
		c.Trouble = err.Error()
	}
	return c
}

// Trouble is why the network does not do what an item declares, or nil if it does.
func (r *Reconciler[T]) Trouble(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.works[name]; w != nil {
		return w.err
	}
	return nil
}

// all brings the network in step with all items, and with those of which something is left.
func (r *Reconciler[T]) all(ctx context.Context) {
	names := map[string]bool{}
	for _, x := range r.Items() {
		names[x.Name] = true
	}
	r.mu.Lock()
	for name := range r.works {
		names[name] = true
	}
	r.mu.Unlock()
	r.reconcile(ctx, slices.Sorted(maps.Keys(names)))
}

func (r *Reconciler[T]) reconcile(ctx context.Context, names []string) {
	tasks.Each(names, reconcileAtOnce, func(name string) { r.one(ctx, name) })
}

// one brings the network in step with what has a name now, or with nothing.
func (r *Reconciler[T]) one(ctx context.Context, name string) {
	r.mu.Lock()
	w := r.works[name]
	if w == nil {
		w = &work{}
		r.works[name] = w
	}
	r.mu.Unlock()
	w.doing.Lock()
	defer w.doing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	x, declared := r.Item(name)
	if ctx.Err() != nil {
		return // at the end there are no items any more, and rules stay
	}
	err := r.apply(ctx, x, name, declared)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) && !errors.Is(err, context.Canceled) {
		r.Log.Warn("the network does not do what was declared; it is tried again", r.Noun, name, "error", err)
	}
	if w.err = err; !declared && err == nil && r.works[name] == w {
		delete(r.works, name)
	}
}

func (r *Reconciler[T]) apply(ctx context.Context, x Item[T], name string, declared bool) error {
	if !declared {
		return r.Ledger.Remove(ctx, name)
	}
	program, err := r.Program(ctx, x)
	if err != nil {
		return err
	}
	return r.Ledger.Apply(ctx, name, program, network.ApplyOptions{AllowDown: true})
}
