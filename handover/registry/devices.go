package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// devicesChanged makes devices that were declared those that there are.
func (r *Registry) devicesChanged(ctx context.Context, changes []service.Change[Device]) {
	var ids []string
	for _, x := range changes {
		ids = append(ids, x.Name)
		if x.After == nil {
			r.end(ctx, x.Name)
		} else {
			r.take(ctx, x.After.Value)
		}
	}
	r.changed(ctx, ids)
}

// take makes a device that was declared one that there is.
func (r *Registry) take(ctx context.Context, d Device) {
	r.admin.Lock()
	defer r.admin.Unlock()
	err := errRaced
	for errors.Is(err, errRaced) {
		err = r.register(ctx, d.clone())
	}
	if err != nil {
		r.log.Error("a device is not in force as it was declared: remove what contradicts it, and declare it again", "device", d.ID, "error", err)
	}
}

// end forgets a device that is not declared any more.
func (r *Registry) end(ctx context.Context, id string) {
	rec, err := r.hold(id)
	if err != nil {
		return // it was never in force
	}
	defer rec.write.Unlock()
	if err := r.delete(ctx, keyLease+id); err != nil {
		r.log.Warn("the lease of a device that has gone is in the store until the next start", "device", id, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(rec)
}

// DeleteGuest forgets a device that nobody declared, and its lease. Its address rests for a
// while before somebody else gets it.
func (r *Registry) DeleteGuest(ctx context.Context, id string) error {
	r.admin.Lock()
	defer r.admin.Unlock()
	rec, err := r.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	if err := r.apply(ctx, store.OpDelete(keyGuest+id), store.OpDelete(keyLease+id)); err != nil {
		return fmt.Errorf("delete device %q: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(rec)
	return nil
}

// forget takes the device out of memory. Both locks are held.
func (r *Registry) forget(rec *record) {
	if rec.gone {
		return
	}
	d := rec.device
	r.tally(d, rec.stored, -1)
	rec.gone = true
	delete(r.devices, d.ID)
	for _, m := range d.MACs {
		if r.macs[m] == rec {
			delete(r.macs, m)
		}
	}
	now := r.now()
	for _, ip := range []netip.Addr{d.IP, rec.lease.IP, rec.offer} {
		r.rest(ip, d.ID, now)
	}
}

// hold returns the device's record with its write lock held.
func (r *Registry) hold(id string) (*record, error) {
	for {
		r.mu.RLock()
		rec := r.devices[id]
		r.mu.RUnlock()
		if rec == nil {
			return nil, fmt.Errorf("device %q: %w", id, ErrUnknown)
		}
		rec.write.Lock()
		r.mu.RLock()
		gone := rec.gone
		r.mu.RUnlock()
		if !gone {
			return rec, nil
		}
		rec.write.Unlock()
	}
}

// Device returns the device of that name.
func (r *Registry) Device(id string) (Device, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return deviceOf(r.devices[id])
}

// DeviceByMAC returns the device to which the MAC belongs.
func (r *Registry) DeviceByMAC(m openflow.MAC) (Device, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return deviceOf(r.macs[m])
}

// DeviceByIP returns the device that has the address: by a lease that has not
// ended, or because it is bound to it.
func (r *Registry) DeviceByIP(ip netip.Addr) (Device, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a := r.addrs[ip]
	if a == nil {
		return Device{}, false
	}
	rec := r.devices[a.device]
	if rec == nil || rec.device.IP != ip && (rec.lease.IP != ip || !rec.holds()) {
		return Device{}, false
	}
	return rec.device, true
}

func deviceOf(rec *record) (Device, bool) {
	if rec == nil {
		return Device{}, false
	}
	return rec.device, true
}

// Devices returns all devices, sorted by name, but for those that asked for an
// address and have not taken one yet.
func (r *Registry) Devices() []Device {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Device, 0, len(r.devices))
	for _, rec := range r.devices {
		if rec.stored {
			out = append(out, rec.device)
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
