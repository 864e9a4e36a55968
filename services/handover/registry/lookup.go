package registry

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Device returns the device of that name.
func (r *Registry) Device(id string) (Device, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	return deviceOf(r.book.devices[id])
}

// DeviceByMAC returns the device to which the MAC belongs.
func (r *Registry) DeviceByMAC(m openflow.MAC) (Device, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	return deviceOf(r.book.macs[m])
}

// DeviceByIP returns the device that has the address: by a lease that has not
// ended, or because it is bound to it.
func (r *Registry) DeviceByIP(ip netip.Addr) (Device, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	a := r.book.addrs[ip]
	if a == nil {
		return Device{}, false
	}
	rec := r.book.devices[a.device]
	if rec == nil || rec.device.IP != ip && (rec.lease.IP != ip || !rec.holds()) {
		return Device{}, false
	}
	return rec.device, true
}

// deviceOf returns the device of a record, which may be nil.
func deviceOf(rec *record) (Device, bool) {
	if rec == nil {
		return Device{}, false
	}
	return rec.device, true
}

// Devices returns all devices, sorted by name, without learned ones that have asked for an address but
// have not had a lease yet.
func (r *Registry) Devices() []Device {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	out := make([]Device, 0, len(r.book.devices))
	for _, rec := range r.book.devices {
		if rec.stored {
			out = append(out, rec.device)
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Pool returns the pool of that name.
func (r *Registry) Pool(name string) (Pool, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	if p := r.book.pools[name]; p != nil {
		return p.Pool, true
	}
	return Pool{}, false
}

// Pools returns all pools, sorted by name.
func (r *Registry) Pools() []Pool {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	out := make([]Pool, 0, len(r.book.pools))
	for _, p := range r.book.pools {
		out = append(out, p.Pool)
	}
	slices.SortFunc(out, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// LearningPool returns the pool that learns unknown devices, the first by name if there are
// several.
func (r *Registry) LearningPool() (Pool, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	return r.book.learningPool()
}

// Ours reports whether the address lies in the network of one of our own pools.
func (r *Registry) Ours(ip netip.Addr) bool {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	return r.book.ours(ip) != nil
}

// OnlyPool returns the name of our pool if there is exactly one.
func (r *Registry) OnlyPool() string {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	return r.book.onlyPool()
}

// Lease returns the device's lease, even if it has ended. It returns false if the device never had
// one or if another device has its address now.
func (r *Registry) Lease(id string) (Lease, bool) {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	rec := r.book.devices[id]
	if rec == nil || !rec.lease.IP.IsValid() {
		return Lease{}, false
	}
	return rec.lease, true
}

// Signed returns the time in the newest granted signed request of the device.
func (r *Registry) Signed(id string) time.Time {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	if rec := r.book.devices[id]; rec != nil {
		return rec.signed
	}
	return time.Time{}
}

// Leases returns the leases of all devices, sorted by device, including remembered ones that have
// ended.
func (r *Registry) Leases() []Lease {
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	out := make([]Lease, 0, len(r.book.devices))
	for _, rec := range r.book.devices {
		if rec.lease.IP.IsValid() {
			out = append(out, rec.lease)
		}
	}
	slices.SortFunc(out, func(a, b Lease) int { return cmp.Compare(a.Device, b.Device) })
	return out
}
