package mobile

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
)

// things returns what the daemon has set up on the device, as things that are kept as declared. The
// file of name servers is not among them: a program that writes it later keeps it.
func (d *Daemon) things() []drift.Thing {
	things := []drift.Thing{
		{Name: "datapath of " + d.cfg.VNI, After: []drift.Notification{drift.Links, drift.TrafficControl}, Restore: d.path.Restore},
		{
			Name: "address and routes of " + d.cfg.VNI, After: []drift.Notification{drift.Links, drift.Addresses, drift.Routes},
			Restore: d.inLoop(d.leaseholder.restore),
		},
	}
	for _, i := range d.interfaces {
		things = append(things, drift.Thing{
			Name: "interface " + i.Name, After: []drift.Notification{drift.Addresses, drift.Addresses6, drift.Routes},
			Restore: d.inLoop(func() (int, error) { return d.restoreAdopted(i) }),
		})
	}
	return things
}

// inLoop returns a function that calls f in the loop, and returns nothing if the loop has ended.
func (d *Daemon) inLoop(f func() (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		var result struct {
			differences int
			err         error
		}
		if !d.inbox.call(ctx, func() { result.differences, result.err = f() }) {
			return 0, nil
		}
		return result.differences, result.err
	}
}

// restoreAdopted restores an interface if the datapath has it.
func (d *Daemon) restoreAdopted(i *iface) (int, error) {
	if !i.attached {
		return 0, nil
	}
	return d.sys.restoreAdopted(i.Name)
}

// restore configures the virtual interface again if it is no longer as the lease says.
func (h *leaseholder) restore() (int, error) {
	if h.lease == nil || !h.configured || !h.lease.Valid(time.Now()) {
		return 0, nil
	}
	return h.d.sys.restoreLease(*h.lease)
}
