package plugin

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/internal/tasks"
)

// Fits says whether definitions of the configuration fit what the API has declared, and what
// devices have. It changes nothing. Wait for Loaded first.
func (s *Service) Fits(next registry.Definitions) error {
	if err := s.registry.Fits(next).Err(); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// Reconfigure takes definitions of the configuration in the place of those that stood there
// before; devices that are attached follow. Wait for Loaded first.
func (s *Service) Reconfigure(ctx context.Context, next registry.Definitions) error {
	if err := s.registry.Configure(ctx, next); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// declaredChanged has devices follow what was declared, or withdrawn. Without names it was
// something else.
func (s *Service) declaredChanged(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		s.refreshView()
		return
	}
	tasks.Each(ids, 16, func(id string) {
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.conform(ctx, id) })
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a device's rules do not follow yet what was declared; it is tried again", "device", id, "error", err)
			m := s.mobileOf(id)
			s.change(func() { m.err = err.Error() })
		}
	})
}

// conform has a device served as it is declared now, or not at all.
func (s *Service) conform(ctx context.Context, id string) error {
	if _, known := s.registry.Device(id); known {
		return s.replan(ctx, id, "the device was changed")
	}
	s.tellLeft(id)
	return s.detach(ctx, id, s.mobileOf(id).plan.Want().IP, nil, "it is not declared any more")
}
