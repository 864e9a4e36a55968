package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// planDevice checks a device that is to be declared, and keeps its address from others while
// it is written. A MAC or an address that another has is refused. A device that registered
// itself by asking for an address gives way, if it holds none at the time.
func (r *Registry) planDevice(d Device) error {
	f := d.faults()
	f.Check(d.Home == "", "home", d.Home, "nothing: visitors are announced by their own domain")
	f.Check(!d.Learned, "learned", d.Learned, "false: devices are learned when they ask for an address")
	if err := refusal(f, ErrInvalid, "device", d.ID); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, displaced := r.affected(d)
	if err := refusal(append(r.giveWay(d, displaced), r.deviceFaults(&d, displaced)...), ErrConflict, "device", d.ID); err != nil {
		return err
	}
	if d.IP.IsValid() {
		r.claim(d.IP, d.ID, forever)
	}
	return nil
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

// giveWay says which devices that were learned do not give way to one that is declared. The
// lock is held.
func (r *Registry) giveWay(d Device, displaced []*record) service.Faults {
	var f service.Faults
	for i, m := range d.MACs {
		if o := r.macs[m]; slices.Contains(displaced, o) {
			f.Check(!o.holds(), fmt.Sprintf("macs[%d]", i), m, "an address that does not belong to device %q", o.device.ID)
		}
	}
	return f
}

// errRaced says that a device came or went by itself while another was registered.
var errRaced = fmt.Errorf("%w: it just came or went by itself; try again", ErrConflict)

// register checks the device against all others and makes it visible, one that nobody
// declared when it has been written. r.admin is locked.
func (r *Registry) register(ctx context.Context, d Device) error {
	r.mu.RLock()
	rec, displaced := r.affected(d)
	r.mu.RUnlock()
	for _, o := range append(displaced, rec) {
		o.write.Lock()
		defer o.write.Unlock()
	}
	ops, err := r.reserveDevice(&d, rec, displaced)
	if err != nil {
		return err
	}
	if len(ops) > 0 {
		err = r.apply(ctx, ops...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = nil
	if err != nil && d.guest() {
		// Nobody can know whether it was written: the address stays reserved.
		return fmt.Errorf("register device %q: %w", d.ID, err)
	}
	if err != nil {
		r.log.Warn("a device that was learned is in the store until the next start", "instead", d.ID, "error", err)
	}
	for _, o := range displaced {
		r.forget(o)
	}
	r.addDevice(rec, d)
	return nil
}

// affected returns the record that the device has or will have, and the devices
// that were learned and own one of its MACs. The lock is held.
func (r *Registry) affected(d Device) (*record, []*record) {
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

// reserveDevice checks the device against what is registered, and claims its MACs and its
// address. It returns what has to be written.
func (r *Registry) reserveDevice(d *Device, rec *record, displaced []*record) ([]store.Op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, now := r.affected(*d); rec.gone || r.devices[d.ID] != nil && r.devices[d.ID] != rec || !slices.Equal(now, displaced) {
		return nil, fmt.Errorf("device %q: %w", d.ID, errRaced)
	}
	what := "device"
	if d.Home != "" {
		what = "visitor"
	}
	if err := r.room(*d); err != nil {
		return nil, err
	}
	f := r.deviceFaults(d, displaced)
	if !d.guest() { // its class and its pool may be declared after it
		f = r.conflicts(d, displaced)
	}
	if err := refusal(f, ErrConflict, what, d.ID); err != nil {
		return nil, err
	}
	ops, err := registration(*d, rec, displaced)
	if err != nil {
		return nil, err
	}
	r.pending = d.MACs
	if d.IP.IsValid() {
		r.claim(d.IP, d.ID, forever)
	}
	return ops, nil
}

// conflicts says which others have what a device wants, but for those that it displaces. One
// without a pool gets the only one. The lock is held.
func (r *Registry) conflicts(d *Device, displaced []*record) service.Faults {
	var f service.Faults
	if old := r.devices[d.ID]; old != nil && old.device.Home != d.Home {
		f.Add("home", d.Home, "%q, whose device of this name is registered already", old.device.Home)
	}
	if d.Pool == "" && d.Home == "" {
		d.Pool = r.onlyPool()
	}
	r.checkMACs(&f, *d, displaced)
	if a := r.addrs[d.IP]; a != nil && a.device != d.ID && r.now().Before(a.until) {
		f.Add("ip", d.IP, "an address that device %q does not have, nor had until just now", a.device)
	}
	return f
}

// deviceFaults is conflicts, and what a device says of classes and pools. The lock is held.
func (r *Registry) deviceFaults(d *Device, displaced []*record) service.Faults {
	f := r.conflicts(d, displaced)
	if _, ok := r.classes[d.Class]; !ok && d.Class != "" && builtIn[d.Class] == "" {
		f.Add("class", d.Class, "one of the classes: %s", names(r.classes))
	}
	r.checkPool(&f, *d)
	if d.IP.IsValid() && len(f) == 0 {
		r.checkIP(&f, *d)
	}
	return f
}

// room says whether one more visitor may be registered.
func (r *Registry) room(d Device) error {
	switch {
	case r.devices[d.ID] != nil:
		return nil
	case d.Home != "" && r.count.visitors >= maxVisitors:
		return fmt.Errorf("visitor %q: %w: at most %d visitors", d.ID, ErrFull, maxVisitors)
	}
	return nil
}

func (r *Registry) checkMACs(f *service.Faults, d Device, displaced []*record) {
	for i, m := range d.MACs {
		o := r.macs[m]
		if o == nil || o.device.ID == d.ID || slices.Contains(displaced, o) {
			continue
		}
		f.Add(fmt.Sprintf("macs[%d]", i), m, "an address that does not belong to device %q", o.device.ID)
	}
}

func (r *Registry) checkPool(f *service.Faults, d Device) {
	if d.Pool == "" {
		f.Check(d.Home != "", "pool", d.Pool, "one of the pools: %s", names(r.pools))
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

// OnlyPool is the name of our pool if there is just one.
func (r *Registry) OnlyPool() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.onlyPool()
}

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
}

// registration is what has to be written: of devices those alone that nobody declared, which
// end when one that is declared, or a visitor, has what was theirs.
func registration(d Device, rec *record, displaced []*record) (ops []store.Op, err error) {
	switch {
	case d.guest():
		op, err := put(keyGuest+d.ID, d)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	case rec.device.guest():
		ops = append(ops, store.OpDelete(keyGuest+d.ID))
	}
	for _, o := range displaced {
		ops = append(ops, store.OpDelete(keyGuest+o.device.ID), store.OpDelete(keyLease+o.device.ID))
	}
	return ops, nil
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
