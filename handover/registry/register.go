package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// PutDevice registers a device or changes it. A MAC or an address that another
// has is refused. A device that registered itself by asking for an address gives
// way, if it holds none at the time. A device without a pool gets the only one. One
// that stands in the configuration is replaced by such a one alone.
func (r *Registry) PutDevice(ctx context.Context, d Device) error {
	f := d.faults()
	f.Check(d.Home == "", "home", d.Home, "nothing: visitors are announced by their own domain")
	f.Check(!d.Learned, "learned", d.Learned, "false: devices are learned when they ask for an address")
	if err := refusal(f, ErrInvalid, "device", d.ID); err != nil {
		return err
	}
	r.admin.Lock()
	defer r.admin.Unlock()
	if old, ok := r.Device(d.ID); ok && old.Configured && !d.Configured {
		return fmt.Errorf("device %q: %w", d.ID, ErrConfigured)
	}
	return r.register(ctx, d.clone())
}

// Adopt registers a visitor, a device of another domain, with the address it has
// there. The address must not be one of our own networks, nor anybody's. The
// pool, if the device names one, has to be one of its home's.
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

// register checks the device against all others, writes it and makes it visible.
// r.admin is locked.
func (r *Registry) register(ctx context.Context, d Device) error {
	rec, displaced := r.affected(d)
	for _, o := range append(displaced, rec) {
		o.write.Lock()
		defer o.write.Unlock()
	}
	if err := r.reserveDevice(&d, rec, displaced); err != nil {
		return err
	}
	ops, err := r.registration(d, displaced)
	if err == nil {
		err = r.apply(ctx, ops...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = nil
	if err != nil {
		// Nobody can know whether it was written: the address stays reserved.
		return fmt.Errorf("register device %q: %w", d.ID, err)
	}
	for _, o := range displaced {
		r.forget(o)
	}
	r.addDevice(rec, d)
	return nil
}

// affected returns the record that the device has or will have, and the devices
// that were learned and own one of its MACs.
func (r *Registry) affected(d Device) (*record, []*record) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rec := r.devices[d.ID]
	if rec == nil {
		rec = &record{}
	}
	var displaced []*record
	for _, m := range d.MACs {
		if o := r.macs[m]; o != nil && o != rec && o.device.Learned && !slices.Contains(displaced, o) {
			displaced = append(displaced, o)
		}
	}
	return rec, displaced
}

// reserveDevice checks the device against what is registered, and claims its
// MACs and its address.
func (r *Registry) reserveDevice(d *Device, rec *record, displaced []*record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.devices[d.ID]; rec.gone || old != nil && old != rec {
		return fmt.Errorf("device %q: %w: it just came or went by itself; try again", d.ID, ErrConflict)
	}
	if err := r.room(*d); err != nil {
		return err
	}
	var f service.Faults
	if old := r.devices[d.ID]; old != nil && old.device.Home != d.Home {
		f.Add("home", d.Home, "%q, whose device of this name is registered already", old.device.Home)
	}
	if _, ok := r.classes[d.Class]; !ok && d.Class != "" && d.Class != DefaultClass {
		f.Add("class", d.Class, "one of the classes: %s", names(r.classes))
	}
	r.checkMACs(&f, *d, displaced)
	r.checkPool(&f, d)
	if d.IP.IsValid() && len(f) == 0 {
		r.checkIP(&f, *d)
	}
	what := "device"
	if d.Home != "" {
		what = "visitor"
	}
	if err := refusal(f, ErrConflict, what, d.ID); err != nil {
		return err
	}
	r.pending = d.MACs
	if d.IP.IsValid() {
		r.claim(d.IP, d.ID, forever)
	}
	return nil
}

// room says whether one more device may be registered.
func (r *Registry) room(d Device) error {
	switch {
	case r.devices[d.ID] != nil:
		return nil
	case d.Home != "" && r.count.visitors >= maxVisitors:
		return fmt.Errorf("visitor %q: %w: at most %d visitors", d.ID, ErrFull, maxVisitors)
	case len(r.devices)-r.count.learned-r.count.visitors >= maxDevices:
		return fmt.Errorf("device %q: %w: at most %d devices", d.ID, ErrFull, maxDevices)
	}
	return nil
}

func (r *Registry) checkMACs(f *service.Faults, d Device, displaced []*record) {
	for i, m := range d.MACs {
		o := r.macs[m]
		if o == nil || o.device.ID == d.ID || slices.Contains(displaced, o) && !o.holds() {
			continue
		}
		f.Add(fmt.Sprintf("macs[%d]", i), m, "an address that does not belong to device %q", o.device.ID)
	}
}

func (r *Registry) checkPool(f *service.Faults, d *Device) {
	if d.Pool == "" && d.Home == "" {
		if d.Pool = r.onlyPool(); d.Pool == "" {
			f.Add("pool", d.Pool, "one of the pools: %s", names(r.pools))
		}
	}
	if d.Pool == "" {
		return
	}
	p := r.pools[d.Pool]
	if p == nil || p.Home != d.Home {
		f.Add("pool", d.Pool, "a pool of the device's own domain")
		return
	}
	if d.IP.IsValid() {
		f.Check(p.suits(d.IP), "ip", d.IP, "a host's address within %v, the network of pool %q", p.Prefix, p.Name)
	}
}

// onlyPool is the name of our pool if there is just one.
func (r *Registry) onlyPool() string {
	var found string
	for _, p := range r.pools {
		if p.Home != "" {
			continue
		}
		if found != "" {
			return ""
		}
		found = p.Name
	}
	return found
}

func (r *Registry) checkIP(f *service.Faults, d Device) {
	if p := r.ours(d.IP); p != nil && d.Home != "" {
		f.Add("ip", d.IP, "an address of %q: %v is our own, of pool %q", d.Home, p.Prefix, p.Name)
	}
	for _, p := range r.pools {
		f.Check(d.IP != p.Gateway && d.IP != p.Server, "ip", d.IP, "an address other than the router's and the DHCP server's of pool %q", p.Name)
	}
	if a := r.addrs[d.IP]; a != nil && a.device != d.ID && r.now().Before(a.until) {
		f.Add("ip", d.IP, "an address that device %q does not have, nor had until just now", a.device)
	}
}

// registration is what has to be written to register the device.
func (r *Registry) registration(d Device, displaced []*record) ([]store.Op, error) {
	op, err := put(keyDevice+d.ID, d)
	ops := []store.Op{op}
	for _, o := range displaced {
		ops = append(ops, store.OpDelete(keyDevice+o.device.ID), store.OpDelete(keyLease+o.device.ID))
	}
	return ops, err
}

// addDevice makes the device visible. The lock is held.
func (r *Registry) addDevice(rec *record, d Device) {
	old := rec.device
	for _, m := range old.MACs {
		delete(r.macs, m)
	}
	if old.ID == "" {
		rec.idle = r.now()
		r.tally(d, rec.stored, 1)
	} else {
		r.tally(old, rec.stored, -1)
		r.tally(d, true, 1)
	}
	rec.device, rec.stored = d, true
	r.devices[d.ID] = rec
	for _, m := range d.MACs {
		r.macs[m] = rec
	}
	if old.IP.IsValid() && old.IP != d.IP && (old.IP != rec.lease.IP || !rec.holds()) {
		r.rest(old.IP, d.ID, r.now())
	}
}

// tally counts the device in or out. The lock is held.
func (r *Registry) tally(d Device, stored bool, n int) {
	switch {
	case d.Learned:
		r.count.learned += n
		if !stored {
			r.count.unleased += n
		}
	case d.Home != "":
		r.count.visitors += n
	}
}
