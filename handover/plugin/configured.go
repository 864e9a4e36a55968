package plugin

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/handover/registry"
)

// configure makes the registry have what is configured, and not what was.
func (s *Service) configure(ctx context.Context) error {
	refused := 0
	err := s.settings.register(ctx, s.registry, func(string, string, error) error { refused++; return nil })
	if err != nil {
		return err
	}
	err = s.settings.withdraw(ctx, s.registry, func(section, name string, deleted bool) {
		if deleted {
			s.log.Info("withdrawn: it is not configured any more", "section", section, "name", name)
			return
		}
		s.log.Warn("not configured any more, but in use: it is kept, and the API's from now on", "section", section, "name", name)
	})
	if err != nil || refused == 0 {
		return err
	}
	// It may have contradicted what has been withdrawn.
	return s.settings.register(ctx, s.registry, func(section, name string, err error) error {
		// The file was good by itself; it contradicts what was registered since.
		s.log.Error("configured, but refused: it contradicts what the store has", "section", section, "name", name, "error", err)
		s.publish("config-refused", map[string]any{"section": section, "name": name, "reason": err.Error()})
		return nil
	})
}

// register puts what is configured into a registry. failed is told what is not
// taken, and its error ends it.
func (t *Settings) register(ctx context.Context, r *registry.Registry, failed func(section, name string, err error) error) error {
	for _, c := range t.Classes {
		if err := r.PutClass(ctx, c); err != nil {
			if err := failed("classes", c.Name, err); err != nil {
				return err
			}
		}
	}
	for _, p := range t.Pools {
		if err := r.PutPool(ctx, p); err != nil {
			if err := failed("pools", p.Name, err); err != nil {
				return err
			}
		}
	}
	for _, d := range t.Devices {
		if err := r.PutDevice(ctx, d); err != nil {
			if err := failed("devices", d.ID, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw takes out of a registry what is not configured any more. done is told
// of each, and whether it was deleted; what is not is in use.
func (t *Settings) withdraw(ctx context.Context, r *registry.Registry, done func(section, name string, deleted bool)) error {
	each := func(section, name string, withdraw func(context.Context, string) (bool, error)) error {
		deleted, err := withdraw(ctx, name)
		if err == nil {
			done(section, name, deleted)
		}
		return err
	}
	for _, d := range r.Devices() {
		if d.Configured && !slices.ContainsFunc(t.Devices, func(o registry.Device) bool { return o.ID == d.ID }) {
			if err := each("devices", d.ID, r.WithdrawDevice); err != nil {
				return err
			}
		}
	}
	for _, p := range r.Pools() {
		if p.Configured && !slices.ContainsFunc(t.Pools, func(o registry.Pool) bool { return o.Name == p.Name }) {
			if err := each("pools", p.Name, r.WithdrawPool); err != nil {
				return err
			}
		}
	}
	for _, c := range r.Classes() {
		if c.Configured && !slices.ContainsFunc(t.Classes, func(o registry.Class) bool { return o.Name == c.Name }) {
			if err := each("classes", c.Name, r.WithdrawClass); err != nil {
				return err
			}
		}
	}
	return nil
}
