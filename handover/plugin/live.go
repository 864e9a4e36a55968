package plugin

import (
	"context"

	"github.com/sluice-net/sluice/handover/registry"
)

// live is the registry of a service that runs: devices that are attached follow what
// changes, and events tell of it.
type live struct {
	*registry.Registry
	service *Service
}

func (s *Service) live() live { return live{s.registry, s} }

// PutClass registers a class. Devices are moved by it from their next move on.
func (l live) PutClass(ctx context.Context, c registry.Class) error {
	err := l.Registry.PutClass(ctx, c)
	if err == nil {
		l.service.publish("class.changed", map[string]any{"class": c.Name})
	}
	return err
}

// PutPool registers a pool.
func (l live) PutPool(ctx context.Context, p registry.Pool) error {
	err := l.Registry.PutPool(ctx, p)
	if err == nil {
		l.service.refreshView()
		l.service.publish("pool.changed", map[string]any{"pool": p.Name})
	}
	return err
}

// PutDevice registers a device, in its turn.
func (l live) PutDevice(ctx context.Context, d registry.Device) error {
	err := l.service.lanes.do(ctx, d.ID, func(ctx context.Context) error { return l.service.register(ctx, d) })
	if err == nil {
		l.service.publish("device.changed", map[string]any{"device": d.ID})
	}
	return err
}

// WithdrawDevice removes the rules of a device that is here, and withdraws it.
func (l live) WithdrawDevice(ctx context.Context, id string) (bool, error) {
	var deleted bool
	err := l.service.lanes.do(ctx, id, func(ctx context.Context) error {
		lease, leased := l.Lease(id)
		if leased && !lease.Away() {
			if err := l.service.detach(ctx, id, lease.IP, lease.Attachment, "it is not configured any more"); err != nil {
				return err
			}
		}
		var err error
		deleted, err = l.Registry.WithdrawDevice(ctx, id)
		return err
	})
	if err != nil {
		return false, err
	}
	if deleted {
		l.service.tellLeft(id)
		l.service.publish("device.removed", map[string]any{"device": id})
	}
	return deleted, nil
}
