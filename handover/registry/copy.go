package registry

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/store"
)

// Copy returns a registry of its own that has what this one has stored, for trials. It
// keeps that in an empty store.
func (r *Registry) Copy(ctx context.Context, to store.Store) (*Registry, error) {
	entries, err := r.st.List(ctx, keys) // all of one time
	if err != nil {
		return nil, fmt.Errorf("copy the registry: %w", err)
	}
	for _, e := range entries {
		if err := to.Put(ctx, e.Key, e.Value); err != nil {
			return nil, fmt.Errorf("copy the registry: %w", err)
		}
	}
	c := New(to, r.now)
	return c, c.Load(ctx)
}
