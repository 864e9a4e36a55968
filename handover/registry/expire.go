package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/store"
)

const (
	// forgetLearned is how long a device that nobody registered is remembered
	// after its lease has ended.
	forgetLearned = time.Hour
	// forgetVisitor is how long a visitor is expected before it has a lease, and
	// remembered after that has ended.
	forgetVisitor = 10 * time.Minute
	// writeBatch is how many devices are written at once.
	writeBatch = 32
)

// Expire ends the leases whose time has run out and returns them as they were,
// with their attachments. It has to be called regularly: until it has reported a
// lease, nobody else gets the address, and some seconds more, in which the
// device's rules are to be removed. It also forgets visitors and devices that were
// learned when nothing was heard of them for long; of a visitor that never had a
// lease it returns a released one. It writes renewals for which there was no room
// before. An error means that some have to wait for the next call.
func (s *Lessor) Expire(ctx context.Context, now time.Time) ([]Lease, error) {
	var ended []Lease
	over := func(rec *record) bool { return rec.ended(now) || s.book.forgotten(rec, now) }
	err := s.writeOf(ctx, over, func(rec *record) ([]store.Op, func()) {
		id := rec.device.ID
		switch l := rec.lease; {
		case s.book.forgotten(rec, now):
			var ops []store.Op
			if rec.stored {
				ops = []store.Op{store.OpDelete(keyGuest + id), store.OpDelete(keyLease + id)}
			}
			return ops, func() {
				if d := rec.device; d.Home != "" && !rec.lease.IP.IsValid() {
					ended = append(ended, Lease{Device: id, IP: d.IP, Pool: d.Pool, Released: true})
				}
				s.book.forget(rec)
			}
		case rec.ended(now):
			l.Released, l.Attachment = true, nil
			return []store.Op{put(keyLease+id, l)}, func() {
				ended = append(ended, rec.lease)
				s.book.setLease(rec, l)
			}
		}
		return nil, nil
	})
	if err != nil {
		return ended, fmt.Errorf("end leases: %w", err)
	}
	if err := s.writeRenewed(ctx); err != nil {
		return ended, err
	}
	return ended, s.expireDeclined(ctx, now)
}

// writeOf writes what f says of some devices, so many at once, each time all or nothing. The
// lock is held when it calls f; it calls what f returns, with the lock, when it is written.
// Devices that are being changed just now are left out.
func (s *Lessor) writeOf(ctx context.Context, some func(*record) bool, f func(*record) (ops []store.Op, written func())) error {
	var all []*record
	s.book.mu.RLock()
	for _, rec := range s.book.devices {
		if some(rec) {
			all = append(all, rec)
		}
	}
	s.book.mu.RUnlock()
	for batch := range slices.Chunk(all, writeBatch) {
		if err := s.writeBatch(ctx, batch, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Lessor) writeBatch(ctx context.Context, recs []*record, f func(*record) ([]store.Op, func())) error {
	var ops []store.Op
	var done []func()
	for _, rec := range recs {
		if !rec.write.TryLock() {
			continue
		}
		defer rec.write.Unlock()
		s.book.mu.RLock()
		if more, written := f(rec); written != nil && !rec.gone {
			ops, done = append(ops, more...), append(done, written)
		}
		s.book.mu.RUnlock()
	}
	if len(ops) > 0 {
		if err := write(ctx, s.store, ops...); err != nil {
			return err
		}
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	for _, written := range done {
		written()
	}
	return nil
}

// ended says whether the lease's time has run out.
func (rec *record) ended(now time.Time) bool { return rec.holds() && !rec.lease.Active(now) }

// forgotten says whether the device is to be forgotten.
func (b *book) forgotten(rec *record, now time.Time) bool {
	idle := now.Sub(rec.idle)
	switch {
	case rec.holds():
		return false
	case rec.device.Home != "":
		return idle >= forgetVisitor
	case !rec.device.Learned:
		return false
	case !rec.stored:
		a := b.addrs[rec.offer]
		return idle >= offerHold && (a == nil || a.device != rec.device.ID || !now.Before(a.until))
	}
	return idle >= forgetLearned || !rec.lease.IP.IsValid()
}

// expireDeclined forgets the addresses whose quarantine is over.
func (s *Lessor) expireDeclined(ctx context.Context, now time.Time) error {
	var over []netip.Addr
	s.book.mu.RLock()
	for ip, q := range s.book.declined {
		if !now.Before(q.Until) {
			over = append(over, ip)
		}
	}
	s.book.mu.RUnlock()
	for _, ip := range over {
		if err := write(ctx, s.store, store.OpDelete(keyDecline+ip.String())); err != nil {
			return fmt.Errorf("end the quarantine of %v: %w", ip, err)
		}
		s.book.mu.Lock()
		delete(s.book.declined, ip)
		s.book.mu.Unlock()
	}
	return nil
}
