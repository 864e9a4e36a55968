package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// book is the registry's state in memory: which devices there are, and which device has which
// address. Callers of its methods hold mu, except for hold.
type book struct {
	now func() time.Time

	mu      sync.RWMutex
	classes map[string]Class
	pools   map[string]*pool
	devices map[string]*record
	macs    map[openflow.MAC]*record
	addrs   map[netip.Addr]*address
	// declined holds the addresses in quarantine, and for each the device that has declined it.
	declined map[netip.Addr]decline
	// pending holds the MACs of the visitor that is being registered.
	pending []openflow.MAC
	count   struct{ learned, unleased, visitors int }
}

// newBook returns an empty book.
func newBook(now func() time.Time) *book {
	if now == nil {
		now = time.Now
	}
	return &book{
		now: now, classes: map[string]Class{}, pools: map[string]*pool{}, devices: map[string]*record{},
		macs: map[openflow.MAC]*record{}, addrs: map[netip.Addr]*address{}, declined: map[netip.Addr]decline{},
	}
}

// pool is a pool with its allocator.
type pool struct {
	Pool
	allocator allocator
	// replacement is the pool after the change that is being written; nil if none is.
	replacement *Pool
}

// record holds a device, its lease and its offers.
type record struct {
	// write is held while the device or its lease is being changed.
	write sync.Mutex

	// The rest is guarded by book.mu.
	device Device
	// lease has no address if the device has none, or lost it to another device.
	lease Lease
	// offer is the address that was offered last; the claim to it may have ended.
	offer netip.Addr
	// reserved is the address of the lease that is being written.
	reserved netip.Addr
	// asked is the port where a learned device last asked for an address.
	asked network.PortRef
	// stored is false while a learned device has never had a lease: it is in memory only.
	stored bool
	// unwritten reports whether the lease lasts longer than the stored one.
	unwritten bool
	gone      bool
	// idleSince is when the device last lost its lease.
	idleSince time.Time
	// signed is the latest Lease.Signed that the device has had.
	signed time.Time
}

// addresses returns the device's addresses, without invalid ones: the one that it is bound to, the one
// of its lease, and the one that is being leased to it.
func (rec *record) addresses() (out []netip.Addr) {
	held := netip.Addr{}
	if rec.holds() {
		held = rec.lease.IP
	}
	for _, ip := range []netip.Addr{rec.device.IP, held, rec.reserved} {
		if ip.IsValid() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// holds reports whether the device has an address by a lease that has not been ended.
func (rec *record) holds() bool { return rec.lease.IP.IsValid() && !rec.lease.Released }

// decline records that a device has declined an address. The address stays in quarantine until Until,
// or until Return ends the quarantine.
type decline struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// find returns a device for which f returns true.
func (b *book) find(f func(Device) bool) (id string, ok bool) {
	for id, rec := range b.devices {
		if f(rec.device) {
			return id, true
		}
	}
	return "", false
}

// affected returns the record that the device has or will have, and the records of other, learned
// devices to which one of its MACs belongs.
func (b *book) affected(d Device) (*record, []*record) {
	rec := b.devices[d.ID]
	if rec == nil {
		rec = &record{}
	}
	var displaced []*record
	for _, m := range d.MACs {
		if o := b.macs[m]; o != nil && o != rec && o.device.Learned && !slices.Contains(displaced, o) {
			displaced = append(displaced, o)
		}
	}
	return rec, displaced
}

// addDevice makes the device visible.
func (b *book) addDevice(rec *record, d Device) {
	old := rec.device
	for _, m := range old.MACs {
		delete(b.macs, m)
	}
	if old.ID == "" {
		rec.idleSince = b.now()
		b.tally(d, rec.stored, 1)
	} else {
		b.tally(old, rec.stored, -1)
		b.tally(d, true, 1)
	}
	rec.device, rec.stored = d, true
	b.devices[d.ID] = rec
	for _, m := range d.MACs {
		b.macs[m] = rec
	}
	if old.IP.IsValid() && old.IP != d.IP && (old.IP != rec.lease.IP || !rec.holds()) {
		b.rest(old.IP, d.ID, b.now())
	}
}

// tally adds n to the counters of learned, unleased or visiting devices to which the device belongs.
func (b *book) tally(d Device, stored bool, n int) {
	switch {
	case d.Learned:
		b.count.learned += n
		if !stored {
			b.count.unleased += n
		}
	case d.Home != "":
		b.count.visitors += n
	}
}

// forget removes the device from memory. The caller holds rec.write and mu.
func (b *book) forget(rec *record) {
	if rec.gone {
		return
	}
	d := rec.device
	b.tally(d, rec.stored, -1)
	rec.gone = true
	delete(b.devices, d.ID)
	for _, m := range d.MACs {
		if b.macs[m] == rec {
			delete(b.macs, m)
		}
	}
	now := b.now()
	for _, ip := range []netip.Addr{d.IP, rec.lease.IP, rec.offer} {
		b.rest(ip, d.ID, now)
	}
}

// hold returns the device's record with its write lock held.
func (b *book) hold(id string) (*record, error) {
	for {
		b.mu.RLock()
		rec := b.devices[id]
		b.mu.RUnlock()
		if rec == nil {
			return nil, fmt.Errorf("device %q: %w", id, ErrUnknown)
		}
		rec.write.Lock()
		b.mu.RLock()
		gone := rec.gone
		b.mu.RUnlock()
		if !gone {
			return rec, nil
		}
		rec.write.Unlock()
	}
}
