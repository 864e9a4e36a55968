package registry

import (
	"fmt"

	"github.com/sluice-net/sluice/network"
)

// Admit says whether a device that asks at a port may take an address there. Those
// that nobody registered may hold, at one port, no more than half of the pool's
// addresses by offers and leases: whoever makes up devices there leaves the rest
// to others. A device that has an address keeps it.
func (r *Registry) Admit(id string, at network.PortRef) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.devices[id]
	if rec == nil || !rec.device.Learned {
		return nil
	}
	p, err := r.poolOf(rec)
	if err != nil {
		return err
	}
	now := r.now()
	share, have := max(p.size()/2, 1), 0
	for _, a := range p.heap {
		o := r.devices[a.device]
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
		return fmt.Errorf("device %q at %v: pool %q: %w for more unregistered devices there: they have %d of %d", id, at, p.Name, ErrExhausted, have, p.size())
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
