package plugin

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/store/memstore"
)

// registrar is where definitions are registered: a registry or, while the service runs,
// the service, whose devices follow what changes.
type registrar interface {
	PutClass(context.Context, registry.Class) error
	PutPool(context.Context, registry.Pool) error
	PutDevice(context.Context, registry.Device) error
	Classes() []registry.Class
	Pools() []registry.Pool
	Devices() []registry.Device
	WithdrawClass(ctx context.Context, name string) (deleted bool, err error)
	WithdrawPool(ctx context.Context, name string) (deleted bool, err error)
	WithdrawDevice(ctx context.Context, id string) (deleted bool, err error)
}

// refused is told of what a registrar does not take; the error that it returns ends it.
type refused func(section, name string, err error) error

// Fits says whether the registry would take definitions of the configuration: they may
// contradict what the API has made, or each other. It changes nothing. Wait for Loaded
// first.
func (s *Service) Fits(ctx context.Context, next Definitions) error {
	trial, err := s.registry.Copy(ctx, memstore.New())
	if err != nil {
		return err
	}
	return next.configure(ctx, trial, s.configured, func(string, string, bool) {}, func(section, name string, err error) error {
		return fmt.Errorf("%s.%s: %w", section, name, err)
	})
}

// Reconfigure takes definitions of the configuration in the place of those that stood
// there before; devices that are attached follow. Wait for Loaded first. It is not to
// be called from two goroutines at once.
func (s *Service) Reconfigure(ctx context.Context, next Definitions) error {
	err := s.configure(ctx, s.live(), next)
	s.refreshView()
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// configure makes a registrar have what is configured, and not what was.
func (s *Service) configure(ctx context.Context, to registrar, next Definitions) error {
	err := next.configure(ctx, to, s.configured, func(section, name string, deleted bool) {
		if deleted {
			s.log.Info("withdrawn: it is not configured any more", "section", section, "name", name)
			return
		}
		s.log.Warn("not configured any more, but in use: it is kept, and the API's from now on", "section", section, "name", name)
	}, func(section, name string, err error) error {
		// The file was good by itself; it contradicts what was registered since.
		s.log.Error("configured, but refused: it contradicts what the store has", "section", section, "name", name, "error", err)
		s.publish("config.refused", map[string]any{"section": section, "name": name, "reason": err.Error()})
		return nil
	})
	if err == nil {
		s.configured = next
	}
	return err
}

// configure registers what is configured and withdraws what is no more. What stands in
// the registrar, and stood in the configuration as it does now, is left alone.
func (t Definitions) configure(ctx context.Context, to registrar, before Definitions, withdrawn func(section, name string, deleted bool), failed refused) error {
	news := t.since(before, to)
	contradictions := 0
	if err := news.register(ctx, to, func(string, string, error) error { contradictions++; return nil }); err != nil {
		return err
	}
	if err := t.withdraw(ctx, to, withdrawn); err != nil || contradictions == 0 {
		return err
	}
	// It may have contradicted what has been withdrawn.
	return news.register(ctx, to, failed)
}

// since leaves out what has been registered as it stood in the configuration before, and
// stands there still.
func (t Definitions) since(before Definitions, in registrar) Definitions {
	classes, pools, devices := in.Classes(), in.Pools(), in.Devices()
	return Definitions{
		Classes: changed(t.Classes, before.Classes, func(c registry.Class) bool {
			return slices.ContainsFunc(classes, func(o registry.Class) bool { return o.Name == c.Name && o.Configured })
		}),
		Pools: changed(t.Pools, before.Pools, func(p registry.Pool) bool {
			return slices.ContainsFunc(pools, func(o registry.Pool) bool { return o.Name == p.Name && o.Configured })
		}),
		Devices: changed(t.Devices, before.Devices, func(d registry.Device) bool {
			return slices.ContainsFunc(devices, func(o registry.Device) bool { return o.ID == d.ID && o.Configured })
		}),
	}
}

// changed are those of now that are not the same among before, or are not registered.
func changed[T any](now, before []T, registered func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(now), func(x T) bool {
		return slices.ContainsFunc(before, func(o T) bool { return reflect.DeepEqual(o, x) }) && registered(x)
	})
}

// register puts definitions into a registrar.
func (t Definitions) register(ctx context.Context, to registrar, failed refused) error {
	for _, c := range t.Classes {
		if err := to.PutClass(ctx, c); err != nil {
			if err := failed("classes", c.Name, err); err != nil {
				return err
			}
		}
	}
	for _, p := range t.Pools {
		if err := to.PutPool(ctx, p); err != nil {
			if err := failed("pools", p.Name, err); err != nil {
				return err
			}
		}
	}
	for _, d := range t.Devices {
		if err := to.PutDevice(ctx, d); err != nil {
			if err := failed("devices", d.ID, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw takes out of a registrar what is not configured any more. done is told of
// each, and whether it was deleted; what is not is in use.
func (t Definitions) withdraw(ctx context.Context, from registrar, done func(section, name string, deleted bool)) error {
	each := func(section, name string, withdraw func(context.Context, string) (bool, error)) error {
		deleted, err := withdraw(ctx, name)
		if err == nil {
			done(section, name, deleted)
		}
		return err
	}
	for _, d := range from.Devices() {
		if d.Configured && !slices.ContainsFunc(t.Devices, func(o registry.Device) bool { return o.ID == d.ID }) {
			if err := each("devices", d.ID, from.WithdrawDevice); err != nil {
				return err
			}
		}
	}
	for _, p := range from.Pools() {
		if p.Configured && !slices.ContainsFunc(t.Pools, func(o registry.Pool) bool { return o.Name == p.Name }) {
			if err := each("pools", p.Name, from.WithdrawPool); err != nil {
				return err
			}
		}
	}
	for _, c := range from.Classes() {
		if c.Configured && !slices.ContainsFunc(t.Classes, func(o registry.Class) bool { return o.Name == c.Name }) {
			if err := each("classes", c.Name, from.WithdrawClass); err != nil {
				return err
			}
		}
	}
	return nil
}
