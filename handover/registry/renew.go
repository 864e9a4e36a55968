package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/store"
)

// While the store has no room, a lease that is only to last longer does so in memory: a
// device whose renewals are not answered would give up its address, and with it all that it
// carries. The store gets it when there is room again. A controller that is restarted before
// knows the lease as it was written: if its time is over by that, it is ended, and the
// address, which is then the one that others get last, is the device's when it asks again.

// onlyRenews says whether nothing but the lease's time changes. The lock is held.
func (v *Reservation) onlyRenews() bool {
	l, old := v.Lease, v.rec.lease
	return !v.learned && v.rec.holds() && old.IP == l.IP && old.Pool == l.Pool && old.MAC == l.MAC && bytes.Equal(old.ClientID, l.ClientID) &&
		old.Attachment == l.Attachment && old.Left == l.Left
}

// noRoom says whether a write was refused whole because the disk is full.
func noRoom(err error) bool {
	var full *store.NoRoomError
	return errors.As(err, &full)
}

// renew makes the lease last longer in memory. The lock is held.
func (rec *record) renew(l Lease) { rec.lease, rec.signed, rec.unwritten = l, l.Signed, true }

// writeRenewed writes the leases that last longer than the store knows of. Where there is
// still no room they wait on.
func (r *Registry) writeRenewed(ctx context.Context) error {
	r.mu.RLock()
	var waiting []*record
	for _, rec := range r.devices {
		if rec.unwritten {
			waiting = append(waiting, rec)
		}
	}
	r.mu.RUnlock()
	for len(waiting) > 0 {
		n := min(len(waiting), expireBatch)
		if err := r.writeLeases(ctx, waiting[:n]); err != nil {
			if noRoom(err) {
				return nil
			}
			return fmt.Errorf("write renewed leases: %w", err)
		}
		waiting = waiting[n:]
	}
	return nil
}

// writeLeases writes the leases of devices, all or nothing. Devices that are being changed
// just now are written by that.
func (r *Registry) writeLeases(ctx context.Context, recs []*record) error {
	var ops []store.Op
	var held []*record
	for _, rec := range recs {
		if !rec.write.TryLock() {
			continue
		}
		defer rec.write.Unlock()
		r.mu.RLock()
		l, write := rec.lease, rec.unwritten && !rec.gone
		r.mu.RUnlock()
		if !write {
			continue
		}
		op, err := put(keyLease+l.Device, l)
		if err != nil {
			return err
		}
		held, ops = append(held, rec), append(ops, op)
	}
	if len(ops) == 0 {
		return nil
	}
	if err := r.apply(ctx, ops...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range held {
		rec.unwritten = false
	}
	return nil
}
