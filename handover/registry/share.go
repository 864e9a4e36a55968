package registry

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
)

// admit says whether a device that asks at a port may take an address there. Those
// that nobody registered may hold, at one port, no more than half of the pool's
// addresses by offers and leases: whoever makes up devices there leaves the rest
// to others. A device that has an address keeps it. The lock is held, until the device
// has its address: or many that ask at the same time would all find room. At is zero for one
// that has not asked at a port.
func (b *book) admit(rec *record, p *pool, at network.PortRef, now time.Time) error {
	if !rec.device.Learned || at.IsZero() {
		return nil
	}
	share, have := max(p.size()/2, 1), 0
	for _, a := range p.heap {
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

// place is where the device is, or where it last asked.
func (rec *record) place() network.PortRef {
	if rec.holds() && rec.lease.Attachment != nil {
		return rec.lease.Attachment.At
	}
	return rec.asked
}
