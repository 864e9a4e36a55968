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

// book is what a registry has in memory: which devices there are, and which address is
// whose. Its methods want mu held, but for hold.
type book struct {
	now func() time.Time

	mu      sync.RWMutex
	classes map[string]Class
	pools   map[string]*pool
	devices map[string]*record
	macs    map[openflow.MAC]*record
	addrs   map[netip.Addr]*address
	// declined has the addresses in quarantine, with who declined them.
	declined map[netip.Addr]decline
	// pending has the MACs of the visitor that is being registered.
	pending []openflow.MAC
	count   struct{ learned, unleased, visitors int }
}

func newBook(now func() time.Time) *book {
	if now == nil {
		now = time.Now
	}
	return &book{
		now: now, classes: map[string]Class{}, pools: map[string]*pool{}, devices: map[string]*record{},
		macs: map[openflow.MAC]*record{}, addrs: map[netip.Addr]*address{}, declined: map[netip.Addr]decline{},
	}
}

type pool struct {
	Pool
	allocator
	// coming is what the pool is about to be, while that is written.
	coming *Pool
}

// record is a device with what it has.
type record struct {
	// write is held by whoever changes the device or its lease.
	write sync.Mutex

	// The rest is guarded by book.mu.
	device Device
	// lease has no address if the device has none, or lost it to somebody else.
	lease Lease
	// offer is the address that was offered last; the claim to it may be over.
	offer netip.Addr
	// reserved is the address of the lease that is being written.
	reserved netip.Addr
	// asked is the port where a device that was learned last asked for an address.
	asked network.PortRef
	// stored is unset while a device that was learned has never had a lease: it is
	// in memory only.
	stored bool
	// unwritten says that the lease has more time than the store knows of.
	unwritten bool
	gone      bool
	// idle is when the device last came to have no lease.
	idle time.Time
	// signed is the greatest Lease.Signed the device ever had.
	signed time.Time
}

// addresses are those that the device is bound to, has, and is about to have.
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

// holds says whether the device has an address by a lease that nobody has ended.
func (rec *record) holds() bool { return rec.lease.IP.IsValid() && !rec.lease.Released }

// decline is an address in quarantine.
type decline struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// find finds a device.
func (b *book) find(f func(Device) bool) (id string, found bool) {
	for id, rec := range b.devices {
		if f(rec.device) {
			return id, true
		}
	}
	return "", false
}

// affected returns the record that the device has or will have, and the devices that were
// learned and own one of its MACs.
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
		rec.idle = b.now()
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

// tally counts the device in or out.
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

// forget takes the device out of memory. Both locks are held.
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
