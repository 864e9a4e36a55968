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

// maxDeclines bounds the addresses that one device can have in quarantine, so that it cannot use
// up a pool by declining all of it.
const maxDeclines = 4

// minQuarantine is how long a declined address rests at least, which is how long a client waits
// before it asks again (RFC 2131, section 3.1). It doubles each time that the address is declined
// again soon after its return, because then the conflict is one that the controller does not see.
const minQuarantine = 10 * time.Second

// Quarantined is an address that a device has declined.
type Quarantined struct {
	IP     netip.Addr
	Device string
	// Due is when it may return if nobody else uses it, and Until when it returns in any case.
	Due, Until time.Time
}

// Quarantined returns the declined addresses, those first that may return first.
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
// quarantine has ended, or was begun anew, since it was returned by Quarantined.
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
