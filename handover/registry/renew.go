package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/store"
)

// While the store cannot be written, a lease that is only to last longer does so in memory: a
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

// unwritable reports whether a write was refused because the store cannot be written now.
func unwritable(err error) bool {
	var why *store.UnwritableError
	return errors.As(err, &why)
}

// renew makes the lease last longer in memory. The lock is held.
func (rec *record) renew(l Lease) { rec.lease, rec.signed, rec.unwritten = l, l.Signed, true }

// writeRenewed writes the leases that last longer than the store knows of. Where there is
// still no room they wait on.
func (s *Lessor) writeRenewed(ctx context.Context) error {
	waits := func(rec *record) bool { return rec.unwritten }
	err := s.writeOf(ctx, waits, func(rec *record) ([]store.Op, func()) {
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
