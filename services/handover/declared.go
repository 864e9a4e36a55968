package handover

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Fits returns an error if definitions of the configuration conflict with what was declared by the
// API or with what devices hold. It changes nothing. Loaded must be closed before it is called.
func (s *Service) Fits(next registry.Definitions) error {
	if err := s.registry.Fits(next).Err(); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// Reconfigure replaces the configured definitions by next; attached devices follow. Loaded must be
// closed before it is called.
func (s *Service) Reconfigure(ctx context.Context, next registry.Definitions) error {
	if err := s.registry.Configure(ctx, next); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// declaredChanged updates the devices whose declarations have changed. Without names, something
// else than a device has changed.
func (s *Service) declaredChanged(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		s.guards.refreshView()
		return
	}
	tasks.Each(ids, 16, func(id string) {
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.applyDeclaration(ctx, id) })
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a device's rules do not follow its declaration yet; it will be tried again", "device", id, "error", err)
			m := s.placement.mobileOf(id)
			s.change(func() { m.err = err.Error() })
		}
	})
}

// applyDeclaration updates a device's rules to its current declaration, and removes them if it is
// no longer declared.
func (s *Service) applyDeclaration(ctx context.Context, id string) error {
	if _, known := s.registry.Device(id); known {
		return s.placement.replan(ctx, id, "the device was changed")
	}
	s.notifyLeft(id)
	return s.placement.detach(ctx, id, s.placement.mobileOf(id).plan.Want().IP, nil, "the device is no longer declared")
}
