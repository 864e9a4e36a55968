package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Fits says whether definitions of the configuration have room beside those of the API.
func (s *Service) Fits(configured []*Definition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(configured)
	for _, d := range s.definitions {
		if !d.Configured && !named(configured, d.Name) {
			n++
		}
	}
	if n > MaxDefinitions {
		return fmt.Errorf("%d definitions of the configuration, and those of the API, are %d: %w", len(configured), n, ErrTooMany)
	}
	return nil
}

// Reconfigure takes the definitions of the configuration in the place of those that stood
// there before. Flows of definitions that have gone or changed end; what goes on of them
// is placed anew by its next packet. Wait for Ready first.
func (s *Service) Reconfigure(ctx context.Context, configured []*Definition) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	over, err := s.configure(ctx, configured)
	s.refreshView()
	s.applyPunts(ctx)
	each(over, func(f *flow) { s.end(f, "its definition was changed in the configuration") })
	if err != nil {
		return fmt.Errorf("qos: %w", err)
	}
	return nil
}

// configure makes the definitions those of the configuration and those of the API, and
// returns the flows that are over by that. s.changes is locked.
func (s *Service) configure(ctx context.Context, configured []*Definition) (over []*flow, err error) {
	s.mu.Lock()
	before := s.definitions
	s.mu.Unlock()
	for _, d := range before {
		if !d.Configured || named(configured, d.Name) {
			continue
		}
		if gone := s.store.Delete(ctx, definitionKey(d.Name)); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		s.log.Info("a definition is not configured any more", "definition", d.Name)
		flows := s.remove(d.Name)
		over = append(over, flows...)
		s.publish("critical-removed", map[string]any{"name": d.Name, "flows": len(flows)})
	}
	for _, d := range configured {
		next := *d
		next.Configured = true
		if slices.ContainsFunc(before, func(o *Definition) bool { return reflect.DeepEqual(*o, next) }) {
			continue
		}
		if failed := s.storeDefinition(ctx, &next); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		over = append(over, s.remove(next.Name)...)
		s.add(&next)
		s.publish("critical-added", next.Spec)
	}
	return over, err
}

func named(all []*Definition, name string) bool {
	return slices.ContainsFunc(all, func(d *Definition) bool { return d.Name == name })
}
