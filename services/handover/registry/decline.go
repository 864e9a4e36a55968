package registry

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/store"
)

// maxDeclines bounds the addresses that one device can have in quarantine, so that it cannot use
// up a pool by declining all of it.
const maxDeclines = 4

// Decline ends the device's lease because the device found its address in use, and puts the
// address into quarantine.
func (s *Lessor) Decline(ctx context.Context, id string, ip netip.Addr) error {
	rec, err := s.book.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	until := s.book.now().Add(quarantine)
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
	a.quarantined = until
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
