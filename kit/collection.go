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

// These errors are the reasons for which a change can be refused.
var (
	ErrUnknown    = errors.New("there is none of this name: list them to see what there is")
	ErrExists     = errors.New("there is one already: remove it first, or replace it")
	ErrConfigured = errors.New("it stands in the configuration file: change it there, or take it out there, and have the controller read it again")
	ErrFull       = errors.New("there are as many as there may be: remove others first")
	ErrInUse      = errors.New("others refer to it, or it is at work")
	ErrChanged    = errors.New("somebody else has changed it meanwhile: look at it again")
)

// Kind describes the items of a collection.
type Kind[T any] struct {
	// Singular names one item in messages, like "definition", and Plural several.
	Singular, Plural string
	// Prefix begins the items' keys in the store, like "qos/critical/".
	Prefix string
	// Event begins the kinds of the items' events, like "critical".
	Event string
	// MaxItems bounds the number of items.
	MaxItems int
	// Decode decodes a stored value from JSON and checks it. If it is nil, json.Unmarshal decodes
	// the value.
	Decode func([]byte) (T, error)
	// EventPayload returns the description of a value in events. If it is nil, events carry the
	// value itself.
	EventPayload func(T) any
	// Conflicts returns an error if a value conflicts with the items in force. If it is nil,
	// nothing conflicts.
	Conflicts func(name string, v T, all []Item[T]) error
	// Abandoned, if not nil, is called when writing a value that Conflicts has accepted has
	// failed. The value may or may not have been stored.
	Abandoned func(name string)
	// InUse returns an error that wraps ErrInUse if an item must not be removed. If it is nil, any
	// item may be removed. An item that is in use and has left the configuration is kept, and
	// can then be changed through the API.
	InUse func(name string) error
}

// Item is one declared item.
type Item[T any] struct {
	Name  string
	Value T
	// Configured reports whether the item is declared in the configuration file. It can then be
	// changed only there.
	Configured bool
	// Revision is the store's revision of the item's last change.
	Revision int64
}

// Change describes a change of one item. Before is nil if the item is new, and After if it has
// been removed.
type Change[T any] struct {
	Name          string
	Before, After *Item[T]
}

// Options configures a Collection.
type Options[T any] struct {
	Kind[T]
	Store store.Store
	Log   *slog.Logger
	// Publish, if not nil, publishes an event.
	Publish func(kind string, attrs any)
	// Changed, if not nil, acts on changes. Its calls follow the order of the changes, and do not
	// overlap. Whoever made a change waits until Changed has returned. It must not change the
	// collection.
	Changed func(context.Context, []Change[T])
}

// Collection keeps the items of one kind that operators declare through the API or in the
// configuration file, at this controller or at another one with the same store. All changes arrive
// through a watch of the store, in one order. Call Load, then Run. The other methods may be called
// at any time and concurrently.
type Collection[T any] struct {
	Options[T]
	items  atomic.Pointer[[]Item[T]]
	loaded chan struct{}
	ended  chan struct{}
	// writeToken is a lock: a writer receives the token and sends it back when its change is
	// visible, so that the items with which the change was compared stay as they are. There is no
	// token before Load has returned.
	writeToken chan struct{}
	// applyItem, if not nil, replaces Changed. It starts the work that follows from a change of
	// one name and calls done when that work is finished. It does not block. A change is visible
	// once applyItem has been called for it, and without applyItem once it has taken effect.
	applyItem func(name string, done func())
	feed      <-chan store.Change
	stopWatch context.CancelFunc // ends the watch that feeds feed

	mu      sync.Mutex
	entries map[string]entry[T]
	waiting map[string]*waiter // by the name of the stored item
}

// waiter waits for the effects of a stored change.
type waiter struct {
	seen   chan struct{} // closed when the change is visible in Items
	effect chan struct{} // closed when the change has taken effect
}

// entry is an item as it is stored.
type entry[T any] struct {
	Item[T]
	stored []byte // the encoded record
	// broken is the error with which decoding failed. A broken entry is not in force.
	broken error
}

// record is the stored form of an item.
type record struct {
	Configured bool            `json:"configured,omitempty"`
	Value      json.RawMessage `json:"value"`
}

// NewCollection returns a collection without items.
func NewCollection[T any](o Options[T]) *Collection[T] {
	if o.Decode == nil {
		o.Decode = func(b []byte) (v T, err error) { return v, json.Unmarshal(b, &v) }
	}
	if o.Conflicts == nil {
		o.Conflicts = func(string, T, []Item[T]) error { return nil }
	}
	if o.EventPayload == nil {
		o.EventPayload = func(v T) any { return v }
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
		Options: o, loaded: make(chan struct{}), ended: make(chan struct{}), writeToken: make(chan struct{}, 1),
		entries: map[string]entry[T]{}, waiting: map[string]*waiter{},
	}
}

// Loaded returns a channel that is closed once the stored items have been read.
func (c *Collection[T]) Loaded() <-chan struct{} { return c.loaded }

// Items returns the items in force, sorted by name. There are none before Load and after Run has
// returned. The caller must not modify them. Items takes no lock.
func (c *Collection[T]) Items() []Item[T] {
	if all := c.items.Load(); all != nil {
		return *all
	}
	return nil
}

// Item returns the item with a name, and reports whether there is one. It takes no lock.
func (c *Collection[T]) Item(name string) (Item[T], bool) {
	all := c.Items()
	i, ok := slices.BinarySearchFunc(all, name, byName)
	if !ok {
		return Item[T]{}, false
	}
	return all[i], true
}

// Values returns the values of the items in force, sorted by name.
func (c *Collection[T]) Values() []T {
	var out []T
	for _, x := range c.Items() {
		out = append(out, x.Value)
	}
	return out
}

// decodeEntry decodes an entry of the store.
func (c *Collection[T]) decodeEntry(e store.Entry) entry[T] {
	x := entry[T]{Item: Item[T]{Name: e.Key[len(c.Prefix):], Revision: e.Revision}, stored: e.Value}
	var r record
	if x.broken = json.Unmarshal(e.Value, &r); x.broken == nil {
		x.Configured = r.Configured
		x.Value, x.broken = c.Decode(r.Value)
	}
	return x
}

// updateItems replaces the items in force of the given names by their entries, and leaves out
// broken ones. It is fastest if the names are sorted. The lock is held.
func (c *Collection[T]) updateItems(names []string) {
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
