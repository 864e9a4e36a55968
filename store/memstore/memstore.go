package memstore

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/internal/table"
)

// Store keeps its entries in memory. The zero value is not usable; call New.
type Store struct{ table *table.Table }

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{table.New()} }

// wrap adds the package's name to an error.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("memstore: %w", err)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	e, err := s.table.Get(ctx, key)
	return e, wrap(err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	all, err := s.table.List(ctx, prefix)
	return all, wrap(err)
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	return s.Apply(ctx, store.OpPut(key, value))
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	return wrap(s.table.Apply(ctx, []store.Op{store.OpDelete(key)}, true))
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops ...store.Op) error {
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	return wrap(s.table.Apply(ctx, ops, false))
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	changes, err := s.table.Watch(ctx, prefix)
	return changes, wrap(err)
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.table.Close()
	return nil
}
