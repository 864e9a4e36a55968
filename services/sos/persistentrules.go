package sos

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

// persistentTimeout bounds the time to write the rules of one key. persistentAtOnce bounds the
// number of keys that are written at once. So a switch that is slow, or that refuses rules, does
// not delay the others.
const (
	persistentTimeout = 5 * time.Second
	persistentAtOnce  = 64
)

// persistentRules keeps rules in the switches for as long as their sources, the values of type T,
// are wanted. There is one rule set for each key. The sources are stored. A restarted controller
// can therefore declare the rules before it removes undeclared ones, even if switches and agents
// are not connected yet.
type persistentRules[T comparable] struct {
	c       *core
	prefix  string // prefix of the keys in the ledger
	records kit.Records[T]
	// rulesFor computes the rules of a source. failureMessage is logged if a switch refuses
	// them.
	rulesFor       func(T) ([]network.Rule, error)
	failureMessage string

	mu     sync.Mutex
	known  map[string]T
	failed map[string]string // errors with which switches refused the rules, by key
}

func newPersistentRules[T comparable](c *core, prefix, stored, refused string, of func(T) ([]network.Rule, error)) *persistentRules[T] {
	return &persistentRules[T]{
		c: c, prefix: prefix, failureMessage: refused, rulesFor: of, known: map[string]T{}, failed: map[string]string{},
		records: kit.Records[T]{Store: c.store, Prefix: stored, Plural: "sources of the rules " + prefix, Log: c.log},
	}
}

// load reads the sources that an earlier controller has stored.
func (x *persistentRules[T]) load(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.records.Load(ctx, func(key string, v T) error { x.known[key] = v; return nil })
}

// latest returns the sources that were declared last, by key.
func (x *persistentRules[T]) latest() map[string]T {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.known)
}

// apply declares the rules of the wanted sources concurrently, and removes all others.
func (x *persistentRules[T]) apply(ctx context.Context, wanted map[string]T, options network.ApplyOptions) {
	keys := slices.Collect(maps.Keys(wanted))
	for key := range x.latest() {
		if _, ok := wanted[key]; !ok {
			keys = append(keys, key)
		}
	}
	tasks.Each(keys, persistentAtOnce, func(key string) {
		ctx, cancel := context.WithTimeout(ctx, persistentTimeout)
		defer cancel()
		v, ok := wanted[key]
		if !ok {
			x.remove(ctx, key)
			return
		}
		x.storeSource(ctx, key, v)
		rules, err := x.rulesFor(v)
		if err == nil {
			err = x.c.rules.Apply(ctx, x.prefix+key, network.Program{Rules: rules}, options)
		}
		x.recordResult(key, err)
	})
}

// storeSource stores a source unless the store has it already.
func (x *persistentRules[T]) storeSource(ctx context.Context, key string, v T) {
	x.mu.Lock()
	was, ok := x.known[key]
	x.known[key] = v
	x.mu.Unlock()
	if ok && was == v {
		return
	}
	if err := x.records.Put(ctx, key, v); err != nil {
		x.c.log.Warn("what rules follow from is not stored; a restart will write them again", "rules", x.prefix+key, "error", err)
	}
}

func (x *persistentRules[T]) remove(ctx context.Context, key string) {
	if err := errors.Join(x.records.Delete(ctx, key), x.c.rules.Remove(ctx, x.prefix+key)); err != nil {
		x.c.log.Warn("rules could not be removed", "rules", x.prefix+key, "error", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.known, key)
	delete(x.failed, key)
}

// recordResult records whether a switch accepted the rules of a key, and logs each new
// failure once.
func (x *persistentRules[T]) recordResult(key string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil:
		delete(x.failed, key)
	case errors.Is(err, network.ErrSwitchDown), errors.Is(err, context.Canceled):
		// The rules are tried again when the switch is connected again.
	case x.failed[key] != err.Error():
		x.c.log.Error(x.failureMessage, "rules", x.prefix+key, "error", err)
		x.failed[key] = err.Error()
	}
}

// failures returns the errors with which switches refuse rules, by key.
func (x *persistentRules[T]) failures() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.failed)
}
