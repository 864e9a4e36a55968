package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/store"
)

// devicesChanged applies changes of declared devices.
func (r *Registry) devicesChanged(ctx context.Context, changes []kit.Change[Device]) {
	var ids []string
	for _, x := range changes {
		ids = append(ids, x.Name)
		if x.After == nil {
			r.remove(ctx, x.Name)
		} else {
			r.registerDeclared(ctx, x.After.Value)
		}
	}
	r.changed(ctx, ids)
}

// registerDeclared registers a declared device. If it conflicts with another it is logged, and not in force.
func (r *Registry) registerDeclared(ctx context.Context, d Device) {
	r.admin.Lock()
	defer r.admin.Unlock()
	err := errConcurrent
	for errors.Is(err, errConcurrent) {
		err = r.register(ctx, d.clone())
	}
	if err != nil {
		r.log.Error("a declared device is not in force: remove what conflicts with it, and declare it again", "device", d.ID, "error", err)
	}
}

// remove removes a device that is no longer declared.
func (r *Registry) remove(ctx context.Context, id string) {
	rec, err := r.book.hold(id)
	if err != nil {
		return // the device was never in force
	}
	defer rec.write.Unlock()
	if err := write(ctx, r.store, store.OpDelete(keyLease+id)); err != nil {
		r.log.Warn("the lease of a removed device stays in the store until the next start", "device", id, "error", err)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.forget(rec)
}

// DeleteGuest removes a device that nobody declared, and its lease. Its address stays reserved for
// a while before another device gets it.
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
