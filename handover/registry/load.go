package registry

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/store"
)

// Load reads everything from the store. It is called once, before any other
// method. What the store says has to make sense: two devices with one MAC, or two
// leases of one address, cannot have been written by a registry and are an error
// that names them.
func (r *Registry) Load(ctx context.Context) error {
	classes, err := store.ListJSON[Class](ctx, r.st, keyClass)
	if err != nil {
		return fmt.Errorf("read the classes: %w", err)
	}
	pools, err := store.ListJSON[Pool](ctx, r.st, keyPool)
	if err != nil {
		return fmt.Errorf("read the pools: %w", err)
	}
	devices, err := store.ListJSON[Device](ctx, r.st, keyDevice)
	if err != nil {
		return fmt.Errorf("read the devices: %w", err)
	}
	leases, err := store.ListJSON[Lease](ctx, r.st, keyLease)
	if err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	declined, err := store.ListJSON[decline](ctx, r.st, keyDecline)
	if err != nil {
		return fmt.Errorf("read the declined addresses: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.classes = classes
	for _, p := range pools {
		r.addPool(p)
	}
	for _, d := range devices {
		if err := r.loadDevice(d); err != nil {
			return err
		}
	}
	return r.loadAddresses(leases, declined)
}

func (r *Registry) loadDevice(d Device) error {
	for _, m := range d.MACs {
		if o := r.macs[m]; o != nil {
			return fmt.Errorf("load: devices %q and %q both have MAC %v: delete one from the store", o.device.ID, d.ID, m)
		}
	}
	if d.IP.IsValid() {
		if a := r.addrs[d.IP]; a != nil {
			return fmt.Errorf("load: devices %q and %q are both bound to %v: delete one from the store", a.device, d.ID, d.IP)
		}
		r.claim(d.IP, d.ID, forever)
	}
	r.addDevice(&record{stored: true}, d)
	return nil
}

func (r *Registry) loadAddresses(leases map[string]Lease, declined map[string]decline) error {
	for id, l := range leases {
		if !l.Released {
			if err := r.loadLease(id, l); err != nil {
				return err
			}
		}
	}
	// Leases that ended are remembered if nobody else got the address since.
	now := r.now()
	for id, l := range leases {
		rec := r.devices[id]
		if !l.Released || rec == nil {
			continue
		}
		rec.signed = l.Signed
		if a := r.addrs[l.IP]; !l.IP.IsValid() || a != nil && a.device != id {
			continue
		}
		rec.lease = l
		r.claim(l.IP, id, now)
		r.rest(l.IP, id, now)
	}
	for text, q := range declined {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("load: declined address %q: %w", text, err)
		}
		r.declined[ip] = q
		a := r.address(ip)
		a.quarantined = q.Until
		reorder(a)
	}
	return nil
}

func (r *Registry) loadLease(id string, l Lease) error {
	rec := r.devices[id]
	if rec == nil {
		return fmt.Errorf("load: lease of %v for device %q, which is not registered: delete it from the store", l.IP, id)
	}
	if a := r.addrs[l.IP]; a != nil && a.device != id {
		return fmt.Errorf("load: devices %q and %q both have %v: delete one from the store", a.device, id, l.IP)
	}
	rec.lease, rec.signed = l, l.Signed
	r.claim(l.IP, id, forever)
	return nil
}
