package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/store"
)

// While the store cannot be written, a renewed lease is extended in memory only: a device whose
// renewals are not answered would give up its address and all connections that use it. The store
// gets the lease when there is room again. A controller that is restarted before that knows the
// lease as it was written. If it has expired by then it is ended; its address is then the last
// that others get, so the device gets it when it asks again.

// onlyRenews reports whether nothing but the lease's time changes. The caller holds the lock.
func (v *Reservation) onlyRenews() bool {
	l, old := v.Lease, v.rec.lease
	return !v.learned && v.rec.holds() && old.IP == l.IP && old.Pool == l.Pool && old.MAC == l.MAC && bytes.Equal(old.ClientID, l.ClientID) &&
		old.Attachment == l.Attachment && old.Left == l.Left
}

// unwritable reports whether a write was refused because the store cannot be written now.
func unwritable(err error) bool {
	var why *store.UnwritableError
	return errors.As(err, &why)
}

// renew extends the lease in memory. The caller holds the lock.
func (rec *record) renew(l Lease) { rec.lease, rec.signed, rec.unwritten = l, l.Signed, true }

// writeRenewed writes the leases that last longer than the stored ones. If the store still has no
// room they stay in memory.
func (s *Lessor) writeRenewed(ctx context.Context) error {
	waits := func(rec *record) bool { return rec.unwritten }
	err := s.writeBatches(ctx, waits, func(rec *record) ([]store.Op, func()) {
		if !rec.unwritten {
			return nil, nil
		}
		return []store.Op{put(keyLease+rec.lease.Device, rec.lease)}, func() { rec.unwritten = false }
	})
	if err != nil && !unwritable(err) {
		return fmt.Errorf("write renewed leases: %w", err)
	}
	return nil
}
