package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

// The rules of one key take so long at most, and those of so many are written at once: a
// switch that is slow, or refuses, costs the others nothing.
const (
	standingTimeout = 5 * time.Second
	standingAtOnce  = 64
)

// standing keeps rules that stand for as long as what they follow from, a T, is so: a
// program for each key. What they follow from is stored, so that a restart declares them
// before the rules of nobody are removed, when switches and agents are not back yet.
type standing[T comparable] struct {
	c      *core
	prefix string // of the keys in the ledger
	stored string // of those in the store
	// of makes the rules, refused is what it means when a switch does not take them.
	of      func(T) ([]network.Rule, error)
	refused string

	mu     sync.Mutex
	known  map[string]T
	failed map[string]string // why a switch does not take those of a key
}

func newStanding[T comparable](c *core, prefix, stored, refused string, of func(T) ([]network.Rule, error)) *standing[T] {
	return &standing[T]{
		c: c, prefix: prefix, stored: stored, refused: refused, of: of,
		known: map[string]T{}, failed: map[string]string{},
	}
}

// load reads what an earlier controller has stored.
func (x *standing[T]) load(ctx context.Context) error {
	entries, err := x.c.store.List(ctx, x.stored)
	if err != nil {
		return fmt.Errorf("read %s: %w", x.stored, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range entries {
		var v T
		if err := json.Unmarshal(e.Value, &v); err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
		x.known[e.Key[len(x.stored):]] = v
	}
	return nil
}

// latest is what rules followed from last, by key.
func (x *standing[T]) latest() map[string]T {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.known)
}

// keep declares what is wanted, side by side, and removes the rest.
func (x *standing[T]) keep(ctx context.Context, wanted map[string]T, options network.ApplyOptions) {
	keys := slices.Collect(maps.Keys(wanted))
	for key := range x.latest() {
		if _, still := wanted[key]; !still {
			keys = append(keys, key)
		}
	}
	tasks.Each(keys, standingAtOnce, func(key string) {
		ctx, cancel := context.WithTimeout(ctx, standingTimeout)
		defer cancel()
		v, still := wanted[key]
		if !still {
			x.remove(ctx, key)
			return
		}
		x.remember(ctx, key, v)
		rules, err := x.of(v)
		if err == nil {
			err = x.c.rules.Apply(ctx, x.prefix+key, network.Program{Rules: rules}, options)
		}
		x.note(key, err)
	})
}

// remember stores what has not been stored like this before.
func (x *standing[T]) remember(ctx context.Context, key string, v T) {
	x.mu.Lock()
	was, known := x.known[key]
	x.known[key] = v
	x.mu.Unlock()
	if known && was == v {
		return
	}
	b, err := json.Marshal(v)
	if err == nil {
		err = x.c.store.Put(ctx, x.stored+key, b)
	}
	if err != nil {
		x.c.log.Warn("what rules follow from is not stored; a restart will write them again", "rules", x.prefix+key, "error", err)
	}
}

func (x *standing[T]) remove(ctx context.Context, key string) {
	err := x.c.store.Delete(ctx, x.stored+key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err = errors.Join(err, x.c.rules.Remove(ctx, x.prefix+key)); err != nil {
		x.c.log.Warn("rules could not be removed", "rules", x.prefix+key, "error", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.known, key)
	delete(x.failed, key)
}

// note takes note of what a switch said to rules, and tells it once.
func (x *standing[T]) note(key string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil:
		delete(x.failed, key)
	case errors.Is(err, network.ErrSwitchDown), errors.Is(err, context.Canceled):
		// It will be looked at again when it is back.
	case x.failed[key] != err.Error():
		x.c.log.Error(x.refused, "rules", x.prefix+key, "error", err)
		x.failed[key] = err.Error()
	}
}

// failures are why switches do not take rules, by key.
func (x *standing[T]) failures() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.failed)
}
