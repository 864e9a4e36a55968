package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// planDevice checks a device that is to be declared, and reserves its address while the declaration is
// being written. It refuses a MAC or an address that another device has. Only a learned device without
// a lease gives its MACs up.
func (r *Registry) planDevice(d Device) error {
	f := d.faults()
	f.Check(d.Home == "", "home", d.Home, "nothing: visitors are announced by their own domain")
	f.Check(!d.Learned, "learned", d.Learned, "false: devices are learned when they ask for an address")
	if err := refusal(f, ErrInvalid, "device", d.ID); err != nil {
		return err
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	_, displaced := r.book.affected(d)
	if err := refusal(append(r.book.giveWay(d, displaced), r.book.deviceFaults(&d, displaced)...), ErrConflict, "device", d.ID); err != nil {
		return err
	}
	if d.IP.IsValid() {
		r.book.claim(d.IP, d.ID, forever)
	}
	return nil
}

// Adopt registers a visitor, a device of another domain, with the address that it has there. The
// address must not lie in one of our own networks, nor belong to another device. If the device names a
// pool, that pool must belong to the device's home.
func (r *Registry) Adopt(ctx context.Context, d Device, ip netip.Addr) error {
	d.IP = ip
	f := d.faults()
	f.Check(unicast(ip), "ip", ip, "the visitor's IPv4 unicast address")
	f.Check(namePattern.MatchString(d.Home), "home", d.Home, "the name of the visitor's domain: "+nameWant)
	f.Check(!d.Learned, "learned", d.Learned, "false: a visitor is announced by its domain")
	if err := refusal(f, ErrInvalid, "visitor", d.ID); err != nil {
		return err
	}
	r.admin.Lock()
	defer r.admin.Unlock()
	return r.register(ctx, d.clone())
}

// giveWay returns a fault for each displaced device that has a lease. Such a learned device keeps its
// MACs, and the declared device d cannot have them.
func (b *book) giveWay(d Device, displaced []*record) kit.Faults {
	var f kit.Faults
	for i, m := range d.MACs {
		if o := b.macs[m]; slices.Contains(displaced, o) {
			f.Check(!o.holds(), fmt.Sprintf("macs[%d]", i), m, "an address that does not belong to device %q", o.device.ID)
		}
	}
	return f
}

// errConcurrent means that a device was learned or forgotten while another was being registered.
var errConcurrent = fmt.Errorf("%w: it just came or went by itself; try again", ErrConflict)

// register checks the device against all others and makes it visible. A device that nobody
// declared is written first. The caller holds r.admin.
func (r *Registry) register(ctx context.Context, d Device) error {
	r.book.mu.RLock()
	rec, displaced := r.book.affected(d)
	r.book.mu.RUnlock()
	for _, o := range append(displaced, rec) {
		o.write.Lock()
		defer o.write.Unlock()
	}
	ops, err := r.reserveDevice(&d, rec, displaced)
	if err != nil {
		return err
	}
	if len(ops) > 0 {
		err = write(ctx, r.store, ops...)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.pending = nil
	if err != nil && d.guest() {
		// The write may have reached the store, so the address stays reserved.
		return fmt.Errorf("register device %q: %w", d.ID, err)
	}
	if err != nil {
		r.log.Warn("a learned device stays in the store until the next start", "instead", d.ID, "error", err)
	}
	for _, o := range displaced {
		r.book.forget(o)
	}
	r.book.addDevice(rec, d)
	return nil
}

// reserveDevice checks the device against what is registered, and claims its MACs and its address.
// It returns the store operations that register the device.
func (r *Registry) reserveDevice(d *Device, rec *record, displaced []*record) ([]store.Op, error) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if _, now := r.book.affected(*d); rec.gone || r.book.devices[d.ID] != nil && r.book.devices[d.ID] != rec || !slices.Equal(now, displaced) {
		return nil, fmt.Errorf("device %q: %w", d.ID, errConcurrent)
	}
	what := "device"
	if d.Home != "" {
		what = "visitor"
	}
	if d.Home != "" && r.book.devices[d.ID] == nil && r.book.count.visitors >= maxVisitors {
		return nil, fmt.Errorf("visitor %q: %w: at most %d visitors", d.ID, ErrFull, maxVisitors)
	}
	f := r.book.deviceFaults(d, displaced)
	if !d.guest() { // the class and pool of a declared device may be declared after it
		f = r.book.conflicts(d, displaced)
	}
	if err := refusal(f, ErrConflict, what, d.ID); err != nil {
		return nil, err
	}
	r.book.pending = d.MACs
	if d.IP.IsValid() {
		r.book.claim(d.IP, d.ID, forever)
	}
	return registration(*d, rec, displaced), nil
}

// conflicts returns a fault if another domain's device has the name of d, and one for each MAC or
// address of d that another device has. MACs of displaced devices are no faults. If d names no pool
// and we have exactly one, conflicts sets it.
func (b *book) conflicts(d *Device, displaced []*record) kit.Faults {
	var f kit.Faults
	if old := b.devices[d.ID]; old != nil && old.device.Home != d.Home {
		f.Add("home", d.Home, "%q, whose device of this name is registered already", old.device.Home)
	}
	if d.Pool == "" && d.Home == "" {
		d.Pool = b.onlyPool()
	}
	b.checkMACs(&f, *d, displaced)
	if a := b.addrs[d.IP]; a != nil && a.device != d.ID && b.now().Before(a.until) {
		f.Add("ip", d.IP, "an address that device %q does not have, nor had until just now", a.device)
	}
	return f
}

// deviceFaults returns the faults of conflicts, and those of the device's class, pool and address.
func (b *book) deviceFaults(d *Device, displaced []*record) kit.Faults {
	f := b.conflicts(d, displaced)
	if _, ok := b.classes[d.Class]; !ok && d.Class != "" && builtIn[d.Class] == "" {
		f.Add("class", d.Class, "one of the classes: %s", names(b.classes))
	}
	b.checkPool(&f, *d)
	if d.IP.IsValid() && len(f) == 0 {
		b.checkIP(&f, *d)
	}
	return f
}

// checkMACs adds a fault for each MAC that belongs to another device.
func (b *book) checkMACs(f *kit.Faults, d Device, displaced []*record) {
	for i, m := range d.MACs {
		o := b.macs[m]
		if o == nil || o.device.ID == d.ID || slices.Contains(displaced, o) {
			continue
		}
		f.Add(fmt.Sprintf("macs[%d]", i), m, "an address that does not belong to device %q", o.device.ID)
	}
}

// checkPool adds the faults of a device's pool.
func (b *book) checkPool(f *kit.Faults, d Device) {
	if d.Pool == "" {
		f.Check(d.Home != "", "pool", d.Pool, "one of the pools: %s", names(b.pools))
		return
	}
	p := b.pools[d.Pool]
	if p == nil || p.Home != d.Home {
		f.Add("pool", d.Pool, "a pool of the device's own domain")
		return
	}
	if d.IP.IsValid() {
		f.Check(p.suits(d.IP), "ip", d.IP, "a host's address within %v, the network of pool %q", p.Prefix, p.Name)
	}
}

// checkIP adds the faults of the address that a device is bound to.
func (b *book) checkIP(f *kit.Faults, d Device) {
	if p := b.ours(d.IP); p != nil && d.Home != "" {
		f.Add("ip", d.IP, "an address of %q: %v is our own, of pool %q", d.Home, p.Prefix, p.Name)
	}
	for _, p := range b.pools {
		f.Check(d.IP != p.Gateway && d.IP != p.Server, "ip", d.IP, "an address other than the router's and the DHCP server's of pool %q", p.Name)
	}
}

// registration returns the store operations that register a device. They store only devices that
// nobody declared, and delete those whose name or MACs the registered device takes over.
func registration(d Device, rec *record, displaced []*record) (ops []store.Op) {
	switch {
	case d.guest():
		ops = append(ops, put(keyGuest+d.ID, d))
	case rec.device.guest():
		ops = append(ops, store.OpDelete(keyGuest+d.ID))
	}
	for _, o := range displaced {
		ops = append(ops, store.OpDelete(keyGuest+o.device.ID), store.OpDelete(keyLease+o.device.ID))
	}
	return ops
}

// devicesChanged applies changes of declared devices.
func (r *Registry) devicesChanged(ctx context.Context, changes []kit.Change[Device]) {
	var ids []string
	for _, x := range changes {
		ids = append(ids, x.Name)
		if x.After == nil {
			r.remove(ctx, x.Name)
		} else {
			r.registerDeclared(ctx, x.After.Value)
		}
	}
	r.changed(ctx, ids)
}

// registerDeclared registers a declared device. A device that conflicts with another is logged, and is
// not in force.
func (r *Registry) registerDeclared(ctx context.Context, d Device) {
	r.admin.Lock()
	defer r.admin.Unlock()
	err := errConcurrent
	for errors.Is(err, errConcurrent) {
		err = r.register(ctx, d.clone())
	}
	if err != nil {
		r.log.Error("a declared device is not in force: remove what conflicts with it, and declare it again", "device", d.ID, "error", err)
	}
}

// remove removes a device that is no longer declared.
func (r *Registry) remove(ctx context.Context, id string) {
	rec, err := r.book.hold(id)
	if err != nil {
		return // the device was never in force
	}
	defer rec.write.Unlock()
	if err := write(ctx, r.store, store.OpDelete(keyLease+id)); err != nil {
		r.log.Warn("the lease of a removed device stays in the store until the next start", "device", id, "error", err)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.forget(rec)
}

// DeleteGuest removes a device that nobody declared, and its lease. Its address stays reserved for
// a while before another device gets it.
func (r *Registry) DeleteGuest(ctx context.Context, id string) error {
	r.admin.Lock()
	defer r.admin.Unlock()
	rec, err := r.book.hold(id)
	if err != nil {
		return err
	}
	defer rec.write.Unlock()
	if err := write(ctx, r.store, store.OpDelete(keyGuest+id), store.OpDelete(keyLease+id)); err != nil {
		return fmt.Errorf("delete device %q: %w", id, err)
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.book.forget(rec)
	return nil
}

// Learn returns the device to which the MAC belongs, or registers a new one with this MAC if a
// pool learns unknown devices. A new device is kept in memory only until it has a lease.
func (r *Registry) Learn(m openflow.MAC) (Device, error) {
	d := Device{ID: "mac-" + strings.ReplaceAll(m.String(), ":", ""), MACs: []openflow.MAC{m}, Learned: true}
	if err := refusal(d.faults(), ErrInvalid, "device", d.ID); err != nil {
		return Device{}, err
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if rec := r.book.macs[m]; rec != nil {
		return rec.device, nil
	}
	p, ok := r.book.learningPool()
	switch {
	case !ok:
		return Device{}, fmt.Errorf("MAC %v: %w, and no pool takes unknown devices in", m, ErrUnknown)
	case slices.Contains(r.book.pending, m):
		return Device{}, fmt.Errorf("MAC %v: %w: it is being registered", m, ErrConflict)
	case r.book.devices[d.ID] != nil:
		return Device{}, fmt.Errorf("MAC %v: %w: device %q has its name but not the MAC", m, ErrConflict, d.ID)
	case r.book.count.learned >= maxLearned || r.book.count.unleased >= maxUnleased:
		return Device{}, fmt.Errorf("MAC %v: %w devices that nobody registered", m, ErrFull)
	}
	d.Pool, d.Class = p.Name, p.Class
	rec := &record{device: d, idleSince: r.book.now()}
	r.book.devices[d.ID], r.book.macs[m] = rec, rec
	r.book.tally(d, false, 1)
	return d, nil
}
