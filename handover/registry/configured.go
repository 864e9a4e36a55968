package registry

import (
	"context"
	"errors"
	"fmt"
)

// WithdrawClass takes note that a class does not stand in the configuration any
// more. It is deleted or, if something refers to it, kept like one that has never
// stood there.
func (r *Registry) WithdrawClass(ctx context.Context, name string) (deleted bool, err error) {
	r.admin.Lock()
	c, ok := r.Class(name)
	if c.Configured = false; ok {
		err = r.storeClass(ctx, c)
	}
	r.admin.Unlock()
	if err != nil {
		return false, err
	}
	return unlessInUse(r.DeleteClass(ctx, name))
}

// WithdrawPool does the same with a pool.
func (r *Registry) WithdrawPool(ctx context.Context, name string) (deleted bool, err error) {
	r.admin.Lock()
	p, ok := r.Pool(name)
	if p.Configured = false; ok {
		err = r.storePool(ctx, p)
	}
	r.admin.Unlock()
	if err != nil {
		return false, err
	}
	return unlessInUse(r.DeletePool(ctx, name))
}

// WithdrawDevice does the same with a device. One that is in another domain is in
// use: it comes back.
func (r *Registry) WithdrawDevice(ctx context.Context, id string) (deleted bool, err error) {
	r.admin.Lock()
	d, ok := r.Device(id)
	if d.Configured = false; ok {
		err = r.register(ctx, d.clone())
	}
	r.admin.Unlock()
	if err != nil {
		return false, err
	}
	if l, ok := r.Lease(id); ok && l.Away() {
		return false, nil
	}
	return unlessInUse(r.DeleteDevice(ctx, id))
}

func unlessInUse(err error) (deleted bool, _ error) {
	if errors.Is(err, ErrInUse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("withdraw what is not configured any more: %w", err)
	}
	return true, nil
}
