package kit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// reconcileDebounce is how long changes of the network are collected before they are
	// looked at, reconcileEvery how often all items are looked at without a cause.
	reconcileDebounce = 50 * time.Millisecond
	reconcileEvery    = 5 * time.Second
	// reconcileTimeout bounds the work on one item.
	reconcileTimeout = 5 * time.Second
)

// Reconciler is a Collection whose items are rules in the network. For each item Program
// says which, from what is so now; the rest follows: rules are written when the item or the
// network has changed, what fails is tried again, and what is not declared is removed. Items
// are worked on side by side, each for five seconds at most: one that is slow holds up no other.
//
// After a restart the rules of before stay in the switches until Program has returned the
// rules of every item that was loaded, or the item has been deleted: which of them are an
// item's is not known before. An item that cannot be computed yet so keeps its rules.
//
// Rules may have timeouts. One that has ended by its timeout is not written again by routine: only
// when the item is declared anew, Program returns another rule, somebody calls Reconcile for the
// item, or the controller starts.
//
// Call Run; it loads the collection and runs it, too. Have Wake called when the network
// changes, or Reconcile, if it is known for which item that matters and somebody waits.
type Reconciler[T any] struct {
	*Collection[T]
	// Program says which rules an item is. It may be called for several items at once, and
	// is told by ctx when to give up.
	Program func(ctx context.Context, x Item[T]) (network.Program, error)
	Ledger  Ledger
	// Await, if not nil, is called before anything is written, when the collection has been
	// loaded: a service waits there until it knows what its items need after a restart. Until
	// it returns, the rules of before are left as they are.
	Await func(ctx context.Context)
	// ReadyWhen, if not nil, reports whether the service knows everything that its rules depend
	// on beside its items: its agents, say. Until it does, and the rules of all loaded items are
	// known, what a restart has left in the switches stays there. It is asked often, and again
	// after Wake.
	ReadyWhen func() bool
	// OnChange, if not nil, is called when the rules of an item are in the network that Program
	// has returned, if they are others than before, and with an empty program when they have
	// been removed. Whoever waits for the item waits for it, too; it is called for one item
	// never twice at once, and must not call Reconcile for it.
	OnChange func(ctx context.Context, name string, rules network.Program)

	loop  Loop
	tasks *tasks.Group
	queue *queue        // of names
	begun chan struct{} // closed when rules are written

	mu    sync.Mutex
	works map[string]*work
	// awaited holds the loaded items whose rules are not known yet; the ledger is ready when
	// it is empty. It is nil before the items have been loaded.
	awaited map[string]bool
	ready   sync.Once
}

// work is what is done for one item. It is there until nothing of the item is left.
type work struct {
	name string
	err  error  // why the network is not as declared
	next *round // what somebody waits for and has not begun; nil if nothing

	// written is what Program returned last that is in the network; nil before. It belongs to
	// the goroutine that works on the item.
	written *network.Program
}

// round is one look at an item, for all who have asked for it before it began.
type round struct {
	done  chan struct{} // closed when it is over
	err   error
	after []func() // called when it is over, in order
}

// NewReconciler returns one without items. Changed of the options is the reconciler's own.
func NewReconciler[T any](o Options[T], l Ledger, program func(context.Context, Item[T]) (network.Program, error)) *Reconciler[T] {
	r := &Reconciler[T]{Program: program, Ledger: l, loop: NewLoop(), tasks: tasks.New(), begun: make(chan struct{}), works: map[string]*work{}}
	r.queue = newQueue(r.tasks, r.one)
	r.Collection = NewCollection(o)
	r.follow = func(name string, done func()) {
		r.mu.Lock()
		next := r.round(name)
		next.after = append(next.after, done)
		r.mu.Unlock()
		r.queue.add(name, asked)
	}
	return r
}

// Loaded is closed when what the store has is there.
func (r *Reconciler[T]) Loaded() <-chan struct{} { return r.loaded }

// Wake has all items looked at soon. It does not block.
func (r *Reconciler[T]) Wake() { r.loop.Wake() }

// Run works until ctx ends; configured are the items of the configuration, nil if there
// cannot be any. Rules stay in the switches.
func (r *Reconciler[T]) Run(ctx context.Context, configured map[string]T) error {
	// The work ends before the collection, which has no items then.
	collecting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() { r.tasks.Cancel(); end() })
	defer stop()
	defer r.tasks.Stop()
	if err := r.Load(collecting, configured); err != nil {
		return err
	}
	r.awaitItems()
	if r.Await != nil {
		r.Await(ctx)
	}
	close(r.begun)
	r.all(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { r.Collection.Run(collecting) })
	r.loop.Run(ctx, reconcileDebounce, reconcileEvery, r.all)
	return nil
}

// awaitItems notes the loaded items.
func (r *Reconciler[T]) awaitItems() {
	awaited := map[string]bool{}
	for _, x := range r.Items() {
		awaited[x.Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited = awaited
}

// settle tells the ledger once that the rules of all loaded items are known, and whatever else
// they depend on, if so.
func (r *Reconciler[T]) settle() {
	r.mu.Lock()
	known := r.awaited != nil && len(r.awaited) == 0
	r.mu.Unlock()
	if known && (r.ReadyWhen == nil || r.ReadyWhen()) {
		r.ready.Do(r.Ledger.Ready)
	}
}

// Reconcile brings the network in step with an item now, and returns why that failed, if it did. All that has changed before the call has been looked at when it returns. Calls for
// one item while it is worked on share the next look at it. ctx bounds the wait alone.
func (r *Reconciler[T]) Reconcile(ctx context.Context, name string) error {
	select {
	case <-r.begun:
	case <-ctx.Done():
		return fmt.Errorf("%s %q: the service has just been started: %w", r.Noun, name, context.Cause(ctx))
	}
	r.mu.Lock()
	next := r.round(name)
	r.mu.Unlock()
	r.queue.add(name, asked)
	select {
	case <-next.done:
		return next.err
	case <-r.tasks.Context().Done():
		return errEnded
	case <-ctx.Done():
		return fmt.Errorf("%s %q: %w", r.Noun, name, context.Cause(ctx))
	}
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

// all has the network brought in step with all items, and with those of which something is left.
func (r *Reconciler[T]) all(context.Context) {
	names := map[string]bool{}
	for _, x := range r.Items() {
		names[x.Name] = true
	}
	r.mu.Lock()
	for name := range r.works {
		names[name] = true
	}
	r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r.queue.add(name, routine)
	}
	r.settle()
}

// work returns that of a name. The lock is held.
func (r *Reconciler[T]) work(name string) *work {
	w := r.works[name]
	if w == nil {
		w = &work{name: name}
		r.works[name] = w
	}
	return w
}

// round returns the next look at an item. The lock is held; the caller adds the name to the queue.
func (r *Reconciler[T]) round(name string) *round {
	w := r.work(name)
	if w.next == nil {
		w.next = &round{done: make(chan struct{})}
	}
	return w.next
}

// one brings the network in step with the item of a name, or with its absence. The queue calls it
// for one name never twice at once.
func (r *Reconciler[T]) one(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	x, declared := r.Item(name)
	r.mu.Lock()
	if !declared && r.works[name] == nil {
		r.mu.Unlock()
		return // its rules have been removed since somebody had it looked at
	}
	w := r.work(name)
	next := w.next
	w.next = nil
	r.mu.Unlock()
	if next != nil { // what has changed before it was asked for is looked at
		x, declared = r.Item(name)
	}
	err := ctx.Err()
	ended := err != nil
	known := false
	if !ended { // at the end there are no items any more, and rules stay
		known, err = r.apply(ctx, x, w, declared, next != nil)
	}
	r.note(w, declared, known, ended, err)
	r.settle()
	if next == nil {
		return
	}
	for _, f := range next.after {
		f()
	}
	next.err = err
	close(next.done)
}

// note takes note of how an item was brought into the network.
func (r *Reconciler[T]) note(w *work, declared, known, ended bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known {
		delete(r.awaited, w.name)
	}
	if ended {
		return
	}
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) && !errors.Is(err, context.Canceled) {
		r.Log.Warn("the network does not do what was declared; it is tried again", r.Noun, w.name, "error", err)
	}
	if w.err = err; !declared && err == nil && w.next == nil {
		delete(r.works, w.name)
	}
}

// apply brings the network in step with an item, and reports whether the ledger knows now
// which rules the item has. anew says that somebody has asked for it: rules that have ended by
// their timeouts are written again.
func (r *Reconciler[T]) apply(ctx context.Context, x Item[T], w *work, declared, anew bool) (known bool, err error) {
	var p network.Program
	changed := true
	if !declared {
		err = r.Ledger.Remove(ctx, w.name)
	} else if p, err = r.Program(ctx, x); err == nil {
		changed = w.written == nil || !reflect.DeepEqual(*w.written, p)
		if !anew && !changed && w.err == nil {
			return true, nil // a rule that ends just now would be written again
		}
		now := p
		if w.written != nil && !anew {
			now.Rules = withoutEnded(p.Rules, w.written.Rules, r.Ledger.Rules(w.name))
		}
		known = true
		err = r.Ledger.Apply(ctx, w.name, now, network.ApplyOptions{AllowDown: true})
	}
	if err != nil {
		return known, err
	}
	if w.written = &p; changed && r.OnChange != nil {
		r.OnChange(ctx, w.name, p)
	}
	return true, nil
}

// withoutEnded returns rules without those that were written before just so, and that their
// switches have ended by their timeouts since: the ledger does not have these any more.
func withoutEnded(rules, before []network.Rule, there []network.InstalledRule) []network.Rule {
	type place struct {
		at  openflow.DatapathID
		key rule.Key
	}
	placeOf := func(r *network.Rule) place { return place{r.Switch, r.Key()} }
	written, holds := map[place]*network.Rule{}, map[place]bool{}
	for i := range before {
		written[placeOf(&before[i])] = &before[i]
	}
	for i := range there {
		holds[placeOf(&there[i].Rule)] = true
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r network.Rule) bool {
		// One that goes on to another table is in the ledger, and not shown, where a switch has one table.
		if r.Idle == 0 && r.Hard == 0 || r.Next() != 0 || holds[placeOf(&r)] {
			return false
		}
		was := written[placeOf(&r)]
		return was != nil && reflect.DeepEqual(*was, r)
	})
}
