package registry

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
)

// admit returns an error if a device must not take another address at a port. Unregistered devices
// may hold, at one port, no more than half of the pool's addresses by offers and leases, so that a
// host that invents devices leaves the rest to others. A device that has an address keeps it. The
// caller holds the lock until the device has its address: otherwise several that ask at the same
// time could exceed the bound. At is zero for a device that has not asked at a port.
func (b *book) admit(rec *record, p *pool, at network.PortRef, now time.Time) error {
	if !rec.device.Learned || at.IsZero() {
		return nil
	}
	share, have := max(p.size()/2, 1), 0
	for _, a := range p.allocator.heap {
		o := b.devices[a.device]
		if o == nil || !o.device.Learned || !now.Before(a.ends()) {
			continue
		}
		if o == rec {
			rec.asked = at
			return nil
		}
		if o.place() == at {
			have++
		}
	}
	if have >= share {
		return fmt.Errorf("device %q at %v: pool %q: %w for more unregistered devices there: they have %d of %d", rec.device.ID, at, p.Name, ErrExhausted, have, p.size())
	}
	rec.asked = at
	return nil
}

// place returns where the device is, or where it last asked.
func (rec *record) place() network.PortRef {
	if rec.holds() && rec.lease.Attachment != nil {
		return rec.lease.Attachment.At
	}
	return rec.asked
}
