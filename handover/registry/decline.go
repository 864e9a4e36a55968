package registry

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/store"
)

// maxDeclines is how many addresses one device can have in quarantine, so that it
// cannot use up a pool by declining all of it.
const maxDeclines = 4

// Decline ends the device's lease because it found the address in use, and gives
// the address to nobody for a while.
func (r *Registry) Decline(ctx context.Context, id string, ip netip.Addr) error {
	rec, err := r.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	until := r.now().Add(quarantine)
	if err := r.mayDecline(rec, ip); err != nil {
		return err
	}
	ended := Lease{Device: id, Released: true, Signed: rec.signed}
	lease, err := put(keyLease+id, ended)
	if err != nil {
		return err
	}
	address, err := put(keyDecline+ip.String(), decline{Device: id, Until: until})
	if err != nil {
		return err
	}
	ops := []store.Op{address, lease}
	if !rec.stored {
		ops = ops[:1]
	}
	if err := r.apply(ctx, ops...); err != nil {
		return fmt.Errorf("decline of %v by device %q: %w", ip, id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.declined[ip] = decline{Device: id, Until: until}
	rec.lease, rec.offer, rec.idle = ended, netip.Addr{}, r.now()
	a := r.address(ip)
	a.quarantined = until
	r.rest(ip, id, rec.idle)
	reorder(a)
	return nil
}

func (r *Registry) mayDecline(rec *record, ip netip.Addr) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	id := rec.device.ID
	a := r.addrs[ip]
	if a == nil || a.device != id || rec.holds() && rec.lease.IP != ip {
		return fmt.Errorf("device %q: decline %v: %w", id, ip, ErrNotYours)
	}
	n := 0
	for _, q := range r.declined {
		if q.Device == id {
			n++
		}
	}
	if n >= maxDeclines {
		return fmt.Errorf("device %q: decline %v: %w addresses declined, at most %d at a time", id, ip, ErrFull, maxDeclines)
	}
	return nil
}
