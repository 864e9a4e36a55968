package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Offer chooses an address for the device and holds it for a short time: the one
// it has or had, else the wish if that is free, else any that is. At is the port where
// it asks, of which unregistered devices have a share. It writes nothing.
func (r *Registry) Offer(id string, wish netip.Addr, at network.PortRef) (netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.devices[id]
	if rec == nil {
		return netip.Addr{}, fmt.Errorf("device %q: %w", id, ErrUnknown)
	}
	p, err := r.poolOf(rec)
	if err != nil {
		return netip.Addr{}, err
	}
	now := r.now()
	if err := r.admit(rec, p, at, now); err != nil {
		return netip.Addr{}, err
	}
	ip, err := r.choose(rec, p, wish, now)
	if err != nil {
		return netip.Addr{}, err
	}
	rec.offer = ip
	r.extend(ip, id, now.Add(offerHold))
	return ip, nil
}

// extend claims the address until then, or for as long as it is claimed already.
// The lock is held.
func (r *Registry) extend(ip netip.Addr, id string, until time.Time) {
	if a := r.addrs[ip]; a == nil || a.device != id || a.until.Before(until) {
		r.claim(ip, id, until)
	}
}

func (r *Registry) choose(rec *record, p *pool, wish netip.Addr, now time.Time) (netip.Addr, error) {
	id := rec.device.ID
	if want := r.expected(rec, p, now); want.IsValid() {
		if a := r.addrs[want]; !a.free(id, now) {
			return netip.Addr{}, fmt.Errorf("device %q: %v: %w, until %v", id, want, ErrQuarantined, a.quarantined.UTC())
		}
		return want, nil
	}
	if p.gives(wish) && r.addrs[wish].free(id, now) {
		return wish, nil
	}
	if ip, ok := p.find(r.addrs, now); ok {
		return ip, nil
	}
	return netip.Addr{}, fmt.Errorf("device %q: pool %q: %w", id, p.Name, ErrExhausted)
}

// expected is the only address the device may get, or none if any of its pool
// will do: that to which it is bound, else that of its lease, even if that has
// ended, else that which it was offered.
func (r *Registry) expected(rec *record, p *pool, now time.Time) netip.Addr {
	if rec.device.IP.IsValid() {
		return rec.device.IP
	}
	if ip := rec.lease.IP; ip.IsValid() && p.usable(ip) {
		if a := r.addrs[ip]; a != nil && a.free(rec.device.ID, now) {
			return ip
		}
	}
	if a := r.addrs[rec.offer]; a != nil && a.device == rec.device.ID && p.gives(rec.offer) && a.free(a.device, now) {
		return rec.offer
	}
	return netip.Addr{}
}

func (r *Registry) poolOf(rec *record) (*pool, error) {
	if p := r.pools[rec.device.Pool]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("device %q: pool %q: %w", rec.device.ID, rec.device.Pool, ErrUnknown)
}

// Claim is what a client asks for and how.
type Claim struct {
	IP       netip.Addr
	ClientID []byte
	// MAC is the client's hardware address in the request.
	MAC openflow.MAC
	// Attachment is where the device is from now on; nil leaves it as it is.
	Attachment *Attachment
	// Signed is the time in the request's signature, if it has one.
	Signed time.Time
}

// Reservation is a lease that a device is to have, and that is not written yet:
// nobody else gets its address, and the device has what it had before. It holds up
// other changes of the device until Commit, which has to be called once.
type Reservation struct {
	// Lease is what the device will have.
	Lease Lease

	r       *Registry
	rec     *record
	device  Device
	learned bool // the device has to be written too
}

// Reserve gives the device the address, or more time for it, as soon as the
// reservation is committed.
func (r *Registry) Reserve(id string, c Claim) (*Reservation, error) {
	if len(c.ClientID) > maxClientID {
		return nil, fmt.Errorf("device %q: client identifier of %d bytes: %w: at most %d", id, len(c.ClientID), ErrInvalid, maxClientID)
	}
	rec, err := r.hold(id)
	if err != nil {
		return nil, err
	}
	v := &Reservation{r: r, rec: rec}
	if v.Lease, v.device, v.learned, err = r.reserve(rec, c); err != nil {
		rec.write.Unlock()
		return nil, err
	}
	return v, nil
}

// Commit makes the lease the one that the device has, with one write.
func (v *Reservation) Commit(ctx context.Context) error {
	defer v.rec.write.Unlock()
	r, l, id := v.r, v.Lease, v.device.ID
	err := r.writeGrant(ctx, l, v.device, v.learned)
	r.mu.Lock()
	defer r.mu.Unlock()
	v.rec.reserved = netip.Addr{}
	if v.onlyRenews() && noRoom(err) {
		v.rec.renew(l)
		return nil
	}
	if err != nil {
		// Nobody can know whether it was written, so the address stays claimed for
		// this device as long as the lease would have lasted.
		return fmt.Errorf("lease of %v to device %q: %w", l.IP, id, err)
	}
	old := v.rec.lease
	v.rec.lease, v.rec.signed, v.rec.unwritten = l, l.Signed, false
	if v.learned {
		r.tally(v.device, false, -1)
		v.rec.stored = true
		r.tally(v.device, true, 1)
	}
	r.claim(l.IP, id, forever)
	if old.IP.IsValid() && old.IP != l.IP {
		r.rest(old.IP, id, l.Granted)
	}
	return nil
}

// reserve checks the claim, keeps everybody else from the address, and returns
// the lease to be written, the device, and whether that has to be written too.
func (r *Registry) reserve(rec *record, c Claim) (Lease, Device, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, now := rec.device, r.now()
	fail := func(err error) (Lease, Device, bool, error) {
		return Lease{}, d, false, fmt.Errorf("device %q: %v: %w", d.ID, c.IP, err)
	}
	p, err := r.poolOf(rec)
	if err != nil {
		return Lease{}, d, false, err
	}
	if a := c.Attachment; a != nil {
		if err := r.admit(rec, p, a.At, now); err != nil {
			return Lease{}, d, false, err
		}
	}
	switch want := r.expected(rec, p, now); {
	case want.IsValid() && c.IP != want:
		return fail(fmt.Errorf("%w: it is to have %v", ErrNotYours, want))
	case !want.IsValid() && !p.gives(c.IP):
		return fail(fmt.Errorf("%w: pool %q gives out %v to %v", ErrNotYours, p.Name, p.First, p.Last))
	}
	if p.coming != nil && !p.coming.suits(c.IP) {
		return fail(fmt.Errorf("%w: pool %q is about to leave it out", ErrNotYours, p.Name))
	}
	if a := r.addrs[c.IP]; !a.free(d.ID, now) {
		if now.Before(a.quarantined) {
			return fail(ErrQuarantined)
		}
		return fail(ErrTaken)
	}
	l := rec.granted(c, p.Pool, now)
	rec.offer, rec.reserved = c.IP, c.IP
	r.extend(c.IP, d.ID, l.Expires)
	return l, d, !rec.stored, nil
}

// granted is the lease that follows from the present one and the claim.
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

// next is the attachment that follows: the same one, if nothing but its time differs.
func (a *Attachment) next(n Attachment, now time.Time) *Attachment {
	if a != nil && a.At == n.At && a.MAC == n.MAC && a.Peer == n.Peer {
		return a
	}
	if n.Since.IsZero() {
		n.Since = now
	}
	return &n
}

func (r *Registry) writeGrant(ctx context.Context, l Lease, d Device, learned bool) error {
	if !learned {
		return r.put(ctx, keyLease+l.Device, l)
	}
	device, err := put(keyGuest+d.ID, d)
	if err != nil {
		return err
	}
	lease, err := put(keyLease+d.ID, l)
	if err != nil {
		return err
	}
	return r.apply(ctx, device, lease)
}

// Release ends the device's lease and its attachment. The device gets the same
// address again, if it comes back before that is needed for another.
func (r *Registry) Release(ctx context.Context, id string) error {
	return r.change(ctx, id, func(l Lease, _ time.Time) Lease {
		l.Released, l.Attachment, l.Left = true, nil, nil
		return l
	})
}

// SetAttachment says where the device is from now on, or with nil that it is
// nowhere. What is so already is not written again; that a device without a lease
// is nowhere, is always so. A device that comes back from
// another domain has a whole lease time before it: it may have renewed there.
func (r *Registry) SetAttachment(ctx context.Context, id string, a *Attachment) error {
	err := r.change(ctx, id, func(l Lease, now time.Time) Lease {
		away := l.Away()
		if a == nil {
			l.Attachment = nil
		} else {
			l.Attachment = l.Attachment.next(*a, now)
		}
		l.Left = nil
		if p, ok := r.Pool(l.Pool); away && !l.Away() && ok {
			l.Expires = now.Add(p.LeaseTime)
		}
		return l
	})
	if a == nil && errors.Is(err, ErrNoLease) {
		return nil
	}
	return err
}

// change makes another lease of the one that the device holds.
func (r *Registry) change(ctx context.Context, id string, f func(Lease, time.Time) Lease) error {
	rec, err := r.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	r.mu.RLock()
	old, held := rec.lease, rec.holds()
	r.mu.RUnlock()
	if !held {
		return fmt.Errorf("device %q: %w", id, ErrNoLease)
	}
	l := f(old, r.now())
	if l.Attachment == old.Attachment && l.Released == old.Released {
		return nil
	}
	if err := r.put(ctx, keyLease+id, l); err != nil {
		return fmt.Errorf("lease of device %q: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLease(rec, l)
	return nil
}

// setLease makes a changed lease visible. The lock is held.
func (r *Registry) setLease(rec *record, l Lease) {
	rec.lease, rec.unwritten = l, false
	if l.Released {
		rec.idle = r.now()
		r.rest(l.IP, rec.device.ID, rec.idle)
	}
}

// Lease returns the device's lease, also one that has ended. There is none if the
// device never had one or its address has gone to somebody else.
func (r *Registry) Lease(id string) (Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rec := r.devices[id]
	if rec == nil || !rec.lease.IP.IsValid() {
		return Lease{}, false
	}
	return rec.lease, true
}

// Signed is the time in the newest signed request of the device that was granted.
func (r *Registry) Signed(id string) time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if rec := r.devices[id]; rec != nil {
		return rec.signed
	}
	return time.Time{}
}

// Leases returns the leases of all devices, sorted by device, also those that
// have ended and are remembered.
func (r *Registry) Leases() []Lease {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Lease, 0, len(r.devices))
	for _, rec := range r.devices {
		if rec.lease.IP.IsValid() {
			out = append(out, rec.lease)
		}
	}
	slices.SortFunc(out, func(a, b Lease) int { return cmp.Compare(a.Device, b.Device) })
	return out
}
