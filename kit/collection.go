package kit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/store"
)

// What a change can be refused for.
var (
	ErrUnknown    = errors.New("there is none of this name: list them to see what there is")
	ErrExists     = errors.New("there is one already: remove it first, or replace it")
	ErrConfigured = errors.New("it stands in the configuration file: change it there, or take it out there, and have the controller read it again")
	ErrFull       = errors.New("there are as many as there may be: remove others first")
	ErrInUse      = errors.New("others refer to it, or it is at work")
	ErrChanged    = errors.New("somebody else has changed it meanwhile: look at it again")
)

// Kind says what a collection keeps.
type Kind[T any] struct {
	// Noun is one of them, like "definition"; Nouns are several.
	Noun, Nouns string
	// Prefix begins their keys in the store, like "qos/critical/".
	Prefix string
	// Event begins the kinds of their events, like "critical".
	Event string
	// Most bounds them.
	Most int
	// Decode reads one that has been stored, as JSON, and checks it; nil: as JSON is read.
	Decode func([]byte) (T, error)
	// Tell is what events tell of one; nil: what is stored.
	Tell func(T) any
	// Contradicts says what of those that are in force stands against one; nil: nothing.
	Contradicts func(name string, v T, all []Item[T]) error
	// Abandoned is told that what contradicted nothing may not have been written; it may
	// be nil.
	Abandoned func(name string)
	// InUse says what stands against the end of one; nil: nothing. What is in use and no
	// longer configured is kept, as the API's. Wrap ErrInUse.
	InUse func(name string) error
}

// Item is one thing that was declared.
type Item[T any] struct {
	Name  string
	Value T
	// Configured says that it stands in the configuration, and is changed there alone.
	Configured bool
	// Revision is of its last change.
	Revision int64
}

// Change is what became of one item. Before is nil for one that is new, After for one that
// is gone.
type Change[T any] struct {
	Name          string
	Before, After *Item[T]
}

// Options is what a Collection works with.
type Options[T any] struct {
	Kind[T]
	Store store.Store
	Log   *slog.Logger
	// Publish tells of events; it may be nil.
	Publish func(kind string, attrs any)
	// Changed does what follows from changes, in their order, one call after the other;
	// it may be nil. Whoever made a change waits for it. It must not change the collection.
	Changed func(context.Context, []Change[T])
}

// Collection keeps what operators declare of one kind: by the API or in the configuration
// file, by this controller or by another with the same store. All of it comes by a watch
// of the store, in one order. Use it so: Load, then Run; the other methods may be called
// at any time, from many goroutines.
type Collection[T any] struct {
	Options[T]
	items  atomic.Pointer[[]Item[T]]
	loaded chan struct{}
	ended  chan struct{}
	// turn is taken by who changes something, until the change is seen: what it was
	// compared with stays. Nobody has a turn before Load.
	turn chan struct{}
	// follow, if not nil, takes the place of Changed: it begins what follows from a change of a
	// name, and calls done when that has been done. It does not block, and changes are seen when
	// it has been called. Without it they are seen when they have taken effect.
	follow  func(name string, done func())
	feed    <-chan store.Change
	unwatch context.CancelFunc // ends it

	mu      sync.Mutex
	entries map[string]entry[T]
	waiting map[string]*waiter // for a change of the name to be seen
}

// waiter waits for a change that it has stored.
type waiter struct {
	seen   chan struct{} // closed when it is part of what there is
	effect chan struct{} // closed when it has taken effect
}

// entry is an item as the store has it.
type entry[T any] struct {
	Item[T]
	stored []byte // the record
	// broken is why it cannot be read; it is in force nowhere then.
	broken error
}

// record is an item in the store.
type record struct {
	Configured bool            `json:"configured,omitempty"`
	Value      json.RawMessage `json:"value"`
}

// NewCollection returns one without items.
func NewCollection[T any](o Options[T]) *Collection[T] {
	if o.Decode == nil {
		o.Decode = func(b []byte) (v T, err error) { return v, json.Unmarshal(b, &v) }
	}
	if o.Contradicts == nil {
		o.Contradicts = func(string, T, []Item[T]) error { return nil }
	}
	if o.Tell == nil {
		o.Tell = func(v T) any { return v }
	}
	if o.InUse == nil {
		o.InUse = func(string) error { return nil }
	}
	if o.Abandoned == nil {
		o.Abandoned = func(string) {}
	}
	if o.Publish == nil {
		o.Publish = func(string, any) {}
	}
	if o.Changed == nil {
		o.Changed = func(context.Context, []Change[T]) {}
	}
	return &Collection[T]{
		Options: o, loaded: make(chan struct{}), ended: make(chan struct{}), turn: make(chan struct{}, 1),
		entries: map[string]entry[T]{}, waiting: map[string]*waiter{},
	}
}

// Loaded is closed when it is known what the store has.
func (c *Collection[T]) Loaded() <-chan struct{} { return c.loaded }

// Items are those in force, by name: none before Load and after the end of Run. They are
// not to be modified. It takes no lock.
func (c *Collection[T]) Items() []Item[T] {
	if all := c.items.Load(); all != nil {
		return *all
	}
	return nil
}

// Item finds the one of that name, without a lock.
func (c *Collection[T]) Item(name string) (Item[T], bool) {
	all := c.Items()
	i, ok := slices.BinarySearchFunc(all, name, byName)
	if !ok {
		return Item[T]{}, false
	}
	return all[i], true
}

// Values are what is in force, by name.
func (c *Collection[T]) Values() []T {
	var out []T
	for _, x := range c.Items() {
		out = append(out, x.Value)
	}
	return out
}

// read takes an entry of the store.
func (c *Collection[T]) read(e store.Entry) entry[T] {
	x := entry[T]{Item: Item[T]{Name: e.Key[len(c.Prefix):], Revision: e.Revision}, stored: e.Value}
	var r record
	if x.broken = json.Unmarshal(e.Value, &r); x.broken == nil {
		x.Configured = r.Configured
		x.Value, x.broken = c.Decode(r.Value)
	}
	return x
}

// show makes the entries of those names, as far as they can be read, what is in force. Many
// are best in their order. The lock is held.
func (c *Collection[T]) show(names []string) {
	changed := map[string]bool{}
	for _, name := range names {
		changed[name] = true
	}
	all := make([]Item[T], 0, len(c.entries))
	for _, x := range c.Items() {
		if !changed[x.Name] {
			all = append(all, x)
		}
	}
	for _, name := range names {
		if x := c.entries[name].item(); x != nil {
			i, _ := slices.BinarySearchFunc(all, name, byName)
			all = slices.Insert(all, i, *x)
		}
	}
	c.items.Store(&all)
}

func byName[T any](x Item[T], name string) int { return cmp.Compare(x.Name, name) }
