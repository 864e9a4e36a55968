package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Lessor leases addresses to devices.
type Lessor struct {
	book  *book
	store store.Store
}

// Offer chooses an address for the device and reserves it for a short time. It chooses the address
// that the device has or had, else wish if that is free, else any free one. at is the port where the
// device asks; learned devices at one port get only a share of the pool. Offer writes nothing.
func (s *Lessor) Offer(id string, wish netip.Addr, at network.PortRef) (netip.Addr, error) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	rec := s.book.devices[id]
	if rec == nil {
		return netip.Addr{}, fmt.Errorf("device %q: %w", id, ErrUnknown)
	}
	p, err := s.book.poolOf(rec)
	if err != nil {
		return netip.Addr{}, err
	}
	now := s.book.now()
	if err := s.book.admit(rec, p, at, now); err != nil {
		return netip.Addr{}, err
	}
	ip, err := s.book.choose(rec, p, wish, now)
	if err != nil {
		return netip.Addr{}, err
	}
	rec.offer = ip
	s.book.extend(ip, id, now.Add(offerHold))
	return ip, nil
}

// extend claims the address for the device until the given time. A claim of the device that lasts
// longer stays as it is.
func (b *book) extend(ip netip.Addr, id string, until time.Time) {
	if a := b.addrs[ip]; a == nil || a.device != id || a.until.Before(until) {
		b.claim(ip, id, until)
	}
}

// choose returns the address to offer to a device.
func (b *book) choose(rec *record, p *pool, wish netip.Addr, now time.Time) (netip.Addr, error) {
	id := rec.device.ID
	if want := b.expected(rec, p, now); want.IsValid() {
		if a := b.addrs[want]; !a.free(id, now) {
			return netip.Addr{}, fmt.Errorf("device %q: %v: %w, until %v", id, want, ErrQuarantined, a.quarantined.UTC())
		}
		return want, nil
	}
	if p.gives(wish) && b.addrs[wish].free(id, now) {
		return wish, nil
	}
	if ip, ok := p.find(b.addrs, now); ok {
		return ip, nil
	}
	return netip.Addr{}, fmt.Errorf("device %q: pool %q: %w", id, p.Name, ErrExhausted)
}

// expected returns the only address that the device may get, or an invalid one if any address of its
// pool will do. The only address is the one to which the device is bound, else that of its lease, even
// if the lease has ended, else the one that it was offered.
func (b *book) expected(rec *record, p *pool, now time.Time) netip.Addr {
	if rec.device.IP.IsValid() {
		return rec.device.IP
	}
	if ip := rec.lease.IP; ip.IsValid() && p.usable(ip) {
		if a := b.addrs[ip]; a != nil && a.free(rec.device.ID, now) {
			return ip
		}
	}
	if a := b.addrs[rec.offer]; a != nil && a.device == rec.device.ID && p.gives(rec.offer) && a.free(a.device, now) {
		return rec.offer
	}
	return netip.Addr{}
}

// poolOf returns the pool of a device.
func (b *book) poolOf(rec *record) (*pool, error) {
	if p := b.pools[rec.device.Pool]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("device %q: pool %q: %w", rec.device.ID, rec.device.Pool, ErrUnknown)
}

// Claim is a client's request for an address.
type Claim struct {
	IP       netip.Addr
	ClientID []byte
	// MAC is the client's hardware address in the request.
	MAC openflow.MAC
	// Attachment is where the device is from now on; nil leaves it unchanged.
	Attachment *Attachment
	// Signed is the time in the request's signature, if it has one.
	Signed time.Time
}

// Reservation is a lease that has not been written yet. No other device gets its address, and the
// device keeps its previous lease. The reservation blocks other changes of the device until Commit,
// which has to be called exactly once.
type Reservation struct {
	// Lease is the lease that the device will have.
	Lease Lease

	from    *Lessor
	rec     *record
	device  Device
	learned bool // the device was learned and has to be written with its first lease
}

// Reserve reserves the address for the device, or extends its lease. The change takes effect when
// the reservation is committed.
func (s *Lessor) Reserve(id string, c Claim) (*Reservation, error) {
	if len(c.ClientID) > maxClientID {
		return nil, fmt.Errorf("device %q: client identifier of %d bytes: %w: at most %d", id, len(c.ClientID), ErrInvalid, maxClientID)
	}
	rec, err := s.book.hold(id)
	if err != nil {
		return nil, err
	}
	v, err := s.reserve(rec, c)
	if err != nil {
		rec.write.Unlock()
	}
	return v, err
}

// Commit makes the reserved lease the device's lease, with one write.
func (v *Reservation) Commit(ctx context.Context) error {
	defer v.rec.write.Unlock()
	b, l, id := v.from.book, v.Lease, v.device.ID
	ops := []store.Op{put(keyLease+id, l)}
	if v.learned {
		ops = append(ops, put(keyGuest+id, v.device))
	}
	err := write(ctx, v.from.store, ops...)
	b.mu.Lock()
	defer b.mu.Unlock()
	v.rec.reserved = netip.Addr{}
	if v.onlyRenews() && unwritable(err) {
		v.rec.renew(l)
		return nil
	}
	if err != nil {
		// The write may have reached the store, so the address stays claimed for this device as
		// long as the lease would have lasted.
		return fmt.Errorf("lease of %v to device %q: %w", l.IP, id, err)
	}
	old := v.rec.lease
	v.rec.lease, v.rec.signed, v.rec.unwritten = l, l.Signed, false
	if v.learned {
		b.tally(v.device, false, -1)
		v.rec.stored = true
		b.tally(v.device, true, 1)
	}
	b.claim(l.IP, id, forever)
	if old.IP.IsValid() && old.IP != l.IP {
		b.rest(old.IP, id, l.Granted)
	}
	return nil
}

// reserve checks the claim, and reserves the address.
func (s *Lessor) reserve(rec *record, c Claim) (*Reservation, error) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	d, now := rec.device, s.book.now()
	fail := func(err error) (*Reservation, error) {
		return nil, fmt.Errorf("device %q: %v: %w", d.ID, c.IP, err)
	}
	p, err := s.book.poolOf(rec)
	if err != nil {
		return nil, err
	}
	if a := c.Attachment; a != nil {
		if err := s.book.admit(rec, p, a.At, now); err != nil {
			return nil, err
		}
	}
	switch want := s.book.expected(rec, p, now); {
	case want.IsValid() && c.IP != want:
		return fail(fmt.Errorf("%w: it may have only %v", ErrNotYours, want))
	case !want.IsValid() && !p.gives(c.IP):
		return fail(fmt.Errorf("%w: pool %q gives out %v to %v", ErrNotYours, p.Name, p.First, p.Last))
	}
	if p.replacement != nil && !p.replacement.suits(c.IP) {
		return fail(fmt.Errorf("%w: a change of pool %q leaves it out", ErrNotYours, p.Name))
	}
	if a := s.book.addrs[c.IP]; !a.free(d.ID, now) {
		if now.Before(a.quarantined) {
			return fail(ErrQuarantined)
		}
		return fail(ErrTaken)
	}
	l := rec.granted(c, p.Pool, now)
	rec.offer, rec.reserved = c.IP, c.IP
	s.book.extend(c.IP, d.ID, l.Expires)
	return &Reservation{Lease: l, from: s, rec: rec, device: d, learned: !rec.stored}, nil
}

// granted returns the lease that the device gets by the claim. If it holds the claimed address already,
// the time of granting and, unless the claim names an attachment, the attachment stay as they are.
func (rec *record) granted(c Claim, p Pool, now time.Time) Lease {
	l := Lease{
		Device: rec.device.ID, IP: c.IP, Pool: p.Name, MAC: c.MAC, ClientID: slices.Clone(c.ClientID),
		Granted: now, Expires: now.Add(p.LeaseTime), Signed: rec.signed,
	}
	if c.Signed.After(l.Signed) {
		l.Signed = c.Signed
	}
	if rec.holds() && rec.lease.IP == c.IP {
		l.Granted, l.Attachment = rec.lease.Granted, rec.lease.Attachment
	}
	if c.Attachment != nil {
		had := l.Attachment
		if l.Attachment = had.next(*c.Attachment, now); had != nil && had.MAC != l.Attachment.MAC && had.Peer == "" && l.Attachment.Peer == "" {
			l.Left = had
		}
	}
	return l
}

// next returns the attachment after a request from n: a itself if n differs from it in nothing but the
// time.
func (a *Attachment) next(n Attachment, now time.Time) *Attachment {
	if a != nil && a.At == n.At && a.MAC == n.MAC && a.Peer == n.Peer {
		return a
	}
	if n.Since.IsZero() {
		n.Since = now
	}
	return &n
}

// Release ends the device's lease and its attachment. The device gets the same address again if it
// comes back before another device needs it.
func (s *Lessor) Release(ctx context.Context, id string) error {
	return s.change(ctx, id, func(l Lease, _ time.Time) Lease {
		l.Released, l.Attachment, l.Left = true, nil, nil
		return l
	})
}

// SetAttachment sets where the device is from now on; nil stands for no place. It writes nothing
// if the device is there already. A device without a lease never has a place. A device that comes
// back from another domain gets a whole lease time, because it may have renewed its lease there.
func (s *Lessor) SetAttachment(ctx context.Context, id string, a *Attachment) error {
	err := s.change(ctx, id, func(l Lease, now time.Time) Lease {
		away := l.Away()
		if a == nil {
			l.Attachment = nil
		} else {
			l.Attachment = l.Attachment.next(*a, now)
		}
		l.Left = nil
		if p := s.book.pools[l.Pool]; away && !l.Away() && p != nil {
			l.Expires = now.Add(p.LeaseTime)
		}
		return l
	})
	if a == nil && errors.Is(err, ErrNoLease) {
		return nil
	}
	return err
}

// change replaces the lease of the device by the one that f returns. It calls f with the lock held.
func (s *Lessor) change(ctx context.Context, id string, f func(Lease, time.Time) Lease) error {
	rec, err := s.book.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	s.book.mu.RLock()
	old, held, l := rec.lease, rec.holds(), f(rec.lease, s.book.now())
	s.book.mu.RUnlock()
	if !held {
		return fmt.Errorf("device %q: %w", id, ErrNoLease)
	}
	if l.Attachment == old.Attachment && l.Released == old.Released {
		return nil
	}
	if err := write(ctx, s.store, put(keyLease+id, l)); err != nil {
		return fmt.Errorf("lease of device %q: %w", id, err)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.book.setLease(rec, l)
	return nil
}

// setLease makes a changed lease visible.
func (b *book) setLease(rec *record, l Lease) {
	rec.lease, rec.unwritten = l, false
	if l.Released {
		rec.idleSince = b.now()
		b.rest(l.IP, rec.device.ID, rec.idleSince)
	}
}

// While the store cannot be written, a renewed lease is extended in memory only: a device whose
// renewals are not answered would give up its address and all connections that use it. The lease is
// stored once the store can be written again. A controller that restarts before that reads the lease
// as it was last written. If that lease has expired by then, the controller ends it. Other devices get
// its address last, so the device gets the address again when it asks.

// onlyRenews reports whether the reserved lease differs from the device's present one only in its
// times. The caller holds the lock.
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

// writeRenewed stores the leases whose renewal is only in memory so far. They stay in memory if
// the store still cannot be written.
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
