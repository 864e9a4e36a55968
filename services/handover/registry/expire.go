package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/store"
)

const (
	// forgetLearned is how long a learned device is remembered after its lease has ended.
	forgetLearned = time.Hour
	// forgetVisitor is how long a visitor without a lease is remembered, before its first lease
	// and after its last.
	forgetVisitor = 10 * time.Minute
	// writeBatch is how many devices are written at once.
	writeBatch = 32
)

// Expire ends the leases that have expired and returns them as they were, with their attachments.
// It has to be called regularly. No other device gets the address of a lease before Expire has
// returned the lease, nor for some seconds after that; the caller removes the device's rules in that
// time. Expire also removes visitors and learned devices that have not been heard of for long; for a
// visitor that never had a lease it returns a released lease. It also writes the renewals that could
// not be written before. An error means that some leases have to wait for the next call.
func (s *Lessor) Expire(ctx context.Context, now time.Time) ([]Lease, error) {
	var ended []Lease
	over := func(rec *record) bool { return rec.ended(now) || s.book.forgotten(rec, now) }
	err := s.writeBatches(ctx, over, func(rec *record) ([]store.Op, func()) {
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

// writeBatches writes the operations that f returns for the devices for which selected returns true.
// It writes in batches, each of them all or nothing. It calls f with the lock held and, after the
// write, written with the lock held. It skips devices that are being changed at the moment.
func (s *Lessor) writeBatches(ctx context.Context, selected func(*record) bool, f func(*record) (ops []store.Op, written func())) error {
	var all []*record
	s.book.mu.RLock()
	for _, rec := range s.book.devices {
		if selected(rec) {
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

// writeBatch writes the operations that f returns for a batch of devices.
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

// ended reports whether the lease has expired.
func (rec *record) ended(now time.Time) bool { return rec.holds() && !rec.lease.Active(now) }

// forgotten reports whether the device is to be removed because nothing has been heard of it.
func (b *book) forgotten(rec *record, now time.Time) bool {
	idle := now.Sub(rec.idleSince)
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

// expireDeclined removes the addresses whose quarantine has ended.
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

// maxDeclines bounds the addresses that one device can have in quarantine, so that it cannot use
// up a pool by declining all of it.
const maxDeclines = 4

// minQuarantine is the shortest quarantine of a declined address. It is as long as a client waits
// before it asks again (RFC 2131, section 3.1). The shortest quarantine of an address doubles each time
// that the address is declined again soon after its return, because the controller evidently does not
// see the conflict.
const minQuarantine = 10 * time.Second

// Quarantined is an address that a device has declined.
type Quarantined struct {
	IP     netip.Addr
	Device string
	// Due is when the quarantine may end if nobody else uses the address. Until is when it ends in
	// any case.
	Due, Until time.Time
}

// Quarantined returns the declined addresses in the order of Due.
func (s *Lessor) Quarantined() []Quarantined {
	s.book.mu.RLock()
	defer s.book.mu.RUnlock()
	out := make([]Quarantined, 0, len(s.book.declined))
	for ip, q := range s.book.declined {
		out = append(out, Quarantined{IP: ip, Device: q.Device, Due: s.book.addrs[ip].returnable, Until: q.Until})
	}
	slices.SortFunc(out, func(a, b Quarantined) int { return cmp.Or(a.Due.Compare(b.Due), a.IP.Compare(b.IP)) })
	return out
}

// Return ends the quarantine of an address that nobody else uses any more. It does nothing if the
// quarantine has ended, or has begun anew, since Quarantined returned q.
func (s *Lessor) Return(ctx context.Context, q Quarantined) error {
	rec, err := s.book.hold(q.Device)
	if err == nil {
		defer rec.write.Unlock()
	}
	s.book.mu.RLock()
	current := s.book.declined[q.IP] == decline{Device: q.Device, Until: q.Until}
	s.book.mu.RUnlock()
	if !current {
		return nil
	}
	if err := write(ctx, s.store, store.OpDelete(keyDecline+q.IP.String())); err != nil {
		return fmt.Errorf("end the quarantine of %v: %w", q.IP, err)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	delete(s.book.declined, q.IP)
	a := s.book.address(q.IP)
	a.quarantined = time.Time{}
	reorder(a)
	return nil
}

// Decline ends the device's lease because the device found its address in use, and puts the
// address into quarantine.
func (s *Lessor) Decline(ctx context.Context, id string, ip netip.Addr) error {
	rec, err := s.book.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	now := s.book.now()
	until := now.Add(quarantine)
	if err := s.mayDecline(rec, ip); err != nil {
		return err
	}
	ended := Lease{Device: id, Released: true, Signed: rec.signed}
	declined := decline{Device: id, Until: until}
	ops := []store.Op{put(keyDecline+ip.String(), declined)}
	if rec.stored {
		ops = append(ops, put(keyLease+id, ended))
	}
	if err := write(ctx, s.store, ops...); err != nil {
		return fmt.Errorf("decline of %v by device %q: %w", ip, id, err)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.book.declined[ip] = declined
	rec.lease, rec.offer, rec.idleSince = ended, netip.Addr{}, s.book.now()
	a := s.book.address(ip)
	if now.Sub(a.returnable) >= quarantine {
		a.rest = 0
	}
	a.rest = min(max(2*a.rest, minQuarantine), quarantine)
	a.quarantined, a.returnable = until, now.Add(a.rest)
	s.book.rest(ip, id, rec.idleSince)
	reorder(a)
	return nil
}

// mayDecline returns an error if the device must not decline the address.
func (s *Lessor) mayDecline(rec *record, ip netip.Addr) error {
	s.book.mu.RLock()
	defer s.book.mu.RUnlock()
	id := rec.device.ID
	a := s.book.addrs[ip]
	if a == nil || a.device != id || rec.holds() && rec.lease.IP != ip {
		return fmt.Errorf("device %q: decline %v: %w", id, ip, ErrNotYours)
	}
	n := 0
	for _, q := range s.book.declined {
		if q.Device == id {
			n++
		}
	}
	if n >= maxDeclines {
		return fmt.Errorf("device %q: decline %v: %w addresses declined, at most %d at a time", id, ip, ErrFull, maxDeclines)
	}
	return nil
}
