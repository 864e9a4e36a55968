package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// devicesChanged makes devices that were declared those that there are.
func (r *Registry) devicesChanged(ctx context.Context, changes []service.Change[Device]) {
	var ids []string
	for _, x := range changes {
		ids = append(ids, x.Name)
		if x.After == nil {
			r.end(ctx, x.Name)
		} else {
			r.take(ctx, x.After.Value)
		}
	}
	r.changed(ctx, ids)
}

// take makes a device that was declared one that there is.
func (r *Registry) take(ctx context.Context, d Device) {
	r.admin.Lock()
	defer r.admin.Unlock()
	err := errRaced
	for errors.Is(err, errRaced) {
		err = r.register(ctx, d.clone())
	}
	if err != nil {
		r.log.Error("a device is not in force as it was declared: remove what contradicts it, and declare it again", "device", d.ID, "error", err)
	}
}

// end forgets a device that is not declared any more.
func (r *Registry) end(ctx context.Context, id string) {
	rec, err := r.book.hold(id)
	if err != nil {
		return // it was never in force
	}
	defer rec.write.Unlock()
	if err := write(ctx, r.store, store.OpDelete(keyLease+id)); err != nil {
		r.log.Warn("the lease of a device that has gone is in the store until the next start", "device", id, "error", err)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.forget(rec)
}

// DeleteGuest forgets a device that nobody declared, and its lease. Its address rests for a
// while before somebody else gets it.
func (r *Registry) DeleteGuest(ctx context.Context, id string) error {
	r.admin.Lock()
	defer r.admin.Unlock()
	rec, err := r.book.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	if err := write(ctx, r.store, store.OpDelete(keyGuest+id), store.OpDelete(keyLease+id)); err != nil {
		return fmt.Errorf("delete device %q: %w", id, err)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.forget(rec)
	return nil
}
