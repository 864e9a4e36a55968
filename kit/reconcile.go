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
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// reconcileDebounce is the time for which changes of the network are collected before items are
	// reconciled. reconcileEvery is the interval at which all items are reconciled without a cause.
	reconcileDebounce = 50 * time.Millisecond
	reconcileEvery    = 5 * time.Second
	// reconcileTimeout bounds the work on one item.
	reconcileTimeout = 5 * time.Second
)

// Reconciler is a Collection whose items are rules in the network. Program computes the rules of an
// item from the present state of the network. The Reconciler writes rules when an item or the
// network has changed, retries what fails, and removes the rules of items that are no longer
// declared. It works on several items at once, each for five seconds at most, so that a slow item
// delays no other.
//
// After a restart, the earlier rules stay in the switches until Program has returned the rules of
// every loaded item, or the item has been deleted. Until then it is not known which rules belong to
// an item. So an item whose rules cannot be computed yet keeps its rules.
//
// Rules may have timeouts. A rule that has expired is not written again by routine, but only when
// the item is declared again, Program returns another rule, Reconcile is called for the item, or
// the controller starts.
//
// Call Run, which also loads and runs the collection. Call Wake when the network changes, or
// Reconcile if a caller waits for one item.
type Reconciler[T any] struct {
	*Collection[T]
	// Program returns the rules of an item. It may be called for several items at once. It must
	// return when ctx ends.
	Program func(ctx context.Context, x Item[T]) (network.Program, error)
	Ledger  Ledger
	// Place, if not nil, brings an item into the network instead of Program and Ledger.Apply. It is
	// for items that take more than rules, such as reservations of links. requested reports whether
	// a caller asked for the attempt; otherwise Place need not write rules that are there already.
	// Place reports whether the item's rules are known, also if they could not be written.
	Place func(ctx context.Context, x Item[T], requested bool) (known bool, err error)
	// Await, if not nil, is called after the collection has been loaded and before rules are
	// written. After a restart a service can wait there for the information that its items need.
	// Rules of before the restart stay as they are until Await returns.
	Await func(ctx context.Context)
	// ReadyWhen, if not nil, reports whether the service knows everything that its rules depend on
	// beside its items, for example its agents. Rules from before a restart stay in the switches
	// until ReadyWhen returns true and the rules of all loaded items are known. It is called often,
	// and also after Wake.
	ReadyWhen func() bool
	// OnChange, if not nil, is called after an item's rules have been replaced by different ones,
	// and with an empty program after they have been removed. Callers that wait for the item wait
	// for OnChange, too. Its calls for one item do not overlap. It must not call Reconcile for that
	// item.
	OnChange func(ctx context.Context, name string, rules network.Program)

	loop     Loop
	tasks    *tasks.Group
	queue    *queue        // of the items' names
	started  chan struct{} // closed when rules may be written
	warnings lograte.Limit // limits the log lines about failed items, which users can cause

	adoption adoption // of the rules of the loaded items

	mu     sync.Mutex
	states map[string]*itemState
}

// itemState is the state of the work on one item. It exists as long as the item or any of its rules
// does.
type itemState struct {
	name string
	err  error    // why the network does not do what the item declares
	next *attempt // an attempt that a caller waits for and that has not begun, or nil

	// written is the program that was last written to the network, or nil. Only the goroutine that
	// works on the item uses it.
	written *network.Program
}

// attempt is one attempt to reconcile an item. All callers that asked for it before it began share
// it.
type attempt struct {
	done  chan struct{} // closed at its end
	err   error
	after []func() // called at its end, in order
}

// NewReconciler returns a reconciler without items. It ignores the Changed of the options.
func NewReconciler[T any](o Options[T], l Ledger, program func(context.Context, Item[T]) (network.Program, error)) *Reconciler[T] {
	r := &Reconciler[T]{Program: program, Ledger: l, loop: NewLoop(), tasks: tasks.New(), started: make(chan struct{}), states: map[string]*itemState{}}
	r.queue = newQueue(r.tasks, r.reconcile)
	r.Collection = NewCollection(o)
	r.applyItem = func(name string, done func()) {
		r.mu.Lock()
		next := r.nextAttempt(name)
		next.after = append(next.after, done)
		r.mu.Unlock()
		r.queue.add(name, urgent)
	}
	return r
}

// Loaded returns a channel that is closed once the stored items have been read.
func (r *Reconciler[T]) Loaded() <-chan struct{} { return r.loaded }

// Wake makes Run reconcile all items soon. It does not block.
func (r *Reconciler[T]) Wake() { r.loop.Wake() }

// Run reconciles the items until ctx ends. configured holds the items of the configuration, and is
// nil if the configuration cannot declare any. The rules stay in the switches.
func (r *Reconciler[T]) Run(ctx context.Context, configured map[string]T) error {
	// The workers end before the collection, which has no items after its end.
	collecting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() { r.tasks.Cancel(); end() })
	defer stop()
	defer r.tasks.Stop()
	if err := r.Load(collecting, configured); err != nil {
		return err
	}
	var names []string
	for _, x := range r.Items() {
		names = append(names, x.Name)
	}
	r.adoption.begin(names)
	if r.Await != nil {
		r.Await(ctx)
	}
	close(r.started)
	r.queueAll(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { r.Collection.Run(collecting) })
	r.loop.Run(ctx, reconcileDebounce, reconcileEvery, r.queueAll)
	return nil
}

// signalReady tells the ledger, once, that the rules of all loaded items are known, if they are and
// ReadyWhen agrees.
func (r *Reconciler[T]) signalReady() {
	if r.adoption.complete() && (r.ReadyWhen == nil || r.ReadyWhen()) {
		r.adoption.signal(r.Ledger.Ready)
	}
}

// Reconcile reconciles an item now, and returns the error if that fails. It takes all changes from
// before the call into account. Calls for one item while it is being worked on share the next
// attempt. ctx bounds only the wait.
func (r *Reconciler[T]) Reconcile(ctx context.Context, name string) error {
	select {
	case <-r.started:
	case <-ctx.Done():
		return fmt.Errorf("%s %q: the service has just been started: %w", r.Singular, name, context.Cause(ctx))
	}
	r.mu.Lock()
	next := r.nextAttempt(name)
	r.mu.Unlock()
	r.queue.add(name, urgent)
	select {
	case <-next.done:
		return next.err
	case <-r.tasks.Context().Done():
		return errEnded
	case <-ctx.Done():
		return fmt.Errorf("%s %q: %w", r.Singular, name, context.Cause(ctx))
	}
}

// Condition is the state of an item that answers show beside its declaration.
type Condition struct {
	Origin  string `json:"origin" enum:"file,api" doc:"Where the item is declared and can be changed: in the configuration file or by the API"`
	Problem string `json:"trouble,omitempty" doc:"Why the network does not do what the item declares; the controller tries again"`
}

// Condition returns the present condition of an item.
func (r *Reconciler[T]) Condition(x Item[T]) Condition {
	c := Condition{Origin: api.Origin(x.Configured)}
	if err := r.LastError(x.Name); err != nil {
		c.Problem = err.Error()
	}
	return c
}

// LastError returns why the network does not do what an item declares, or nil if it does.
func (r *Reconciler[T]) LastError(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.states[name]; w != nil {
		return w.err
	}
	return nil
}

// queueAll queues all items, and those whose rules are still to be removed.
func (r *Reconciler[T]) queueAll(context.Context) {
	names := map[string]bool{}
	for _, x := range r.Items() {
		names[x.Name] = true
	}
	r.mu.Lock()
	for name := range r.states {
		names[name] = true
	}
	r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r.queue.add(name, routine)
	}
	r.signalReady()
}

// state returns the state of an item, and makes it if there is none. The lock is held.
func (r *Reconciler[T]) state(name string) *itemState {
	w := r.states[name]
	if w == nil {
		w = &itemState{name: name}
		r.states[name] = w
	}
	return w
}

// nextAttempt returns the next attempt for an item, and makes it if there is none. The lock is
// held. The caller then adds the name to the queue.
func (r *Reconciler[T]) nextAttempt(name string) *attempt {
	w := r.state(name)
	if w.next == nil {
		w.next = &attempt{done: make(chan struct{})}
	}
	return w.next
}

// reconcile writes the rules of the item with a name, or removes them if there is no such item. The
// queue never calls it twice at once for one name.
func (r *Reconciler[T]) reconcile(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	x, declared := r.Item(name)
	r.mu.Lock()
	if !declared && r.states[name] == nil {
		r.mu.Unlock()
		return // its rules have been removed since it was queued
	}
	w := r.state(name)
	next := w.next
	w.next = nil
	r.mu.Unlock()
	if next != nil { // callers expect changes from before their call to be taken into account
		x, declared = r.Item(name)
	}
	err := ctx.Err()
	ended := err != nil
	known := false
	if !ended { // after the end the collection is empty, but the rules must stay
		known, err = r.apply(ctx, x, w, declared, next != nil)
	}
	r.recordResult(w, declared, known, ended, err)
	r.signalReady()
	if next == nil {
		return
	}
	for _, f := range next.after {
		f()
	}
	next.err = err
	close(next.done)
}

// recordResult records the result of an attempt.
func (r *Reconciler[T]) recordResult(w *itemState, declared, known, ended bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known {
		r.adoption.known(w.name)
	}
	if ended {
		return
	}
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) && !errors.Is(err, context.Canceled) {
		r.warnings.Warn(r.Log, "the network does not do what an item declares; trying again", r.Singular, w.name, "error", err)
	}
	if w.err = err; !declared && err == nil && w.next == nil {
		delete(r.states, w.name)
	}
}

// apply writes or removes the rules of an item, and reports whether the ledger now knows the item's
// rules. requested reports whether a caller asked for the attempt: expired rules are then written
// again.
func (r *Reconciler[T]) apply(ctx context.Context, x Item[T], w *itemState, declared, requested bool) (known bool, err error) {
	var p network.Program
	changed := true
	if declared && r.Place != nil {
		return r.Place(ctx, x, requested)
	}
	if !declared {
		err = r.Ledger.Remove(ctx, w.name)
	} else if p, err = r.Program(ctx, x); err == nil {
		changed = w.written == nil || !reflect.DeepEqual(*w.written, p)
		if !requested && !changed && w.err == nil {
			return true, nil // writing again would restore a rule that expires at this moment
		}
		now := p
		if w.written != nil && !requested {
			now.Rules = withoutExpired(p.Rules, w.written.Rules, r.Ledger.Rules(w.name))
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

// withoutExpired returns rules without those that have expired in their switches. before holds the
// rules that were last written, and there those that the ledger lists now. A rule with a timeout
// has expired if it is unchanged from before and missing in there.
func withoutExpired(rules, before []network.Rule, there []network.InstalledRule) []network.Rule {
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
		// In a switch with a single table, the ledger does not list rules that continue in another
		// table.
		if r.Idle == 0 && r.Hard == 0 || r.Next() != 0 || holds[placeOf(&r)] {
			return false
		}
		was := written[placeOf(&r)]
		return was != nil && reflect.DeepEqual(*was, r)
	})
}
