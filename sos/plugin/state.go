package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// Keys in the store.
const (
	keyConfig    = Name + "/config"
	keyWhitelist = Name + "/whitelist/"
)

// storeTimeout bounds each access to the store.
const storeTimeout = 5 * time.Second

// load reads configuration, whitelist, agents and edges from the store and starts to
// follow the agents. Changes wait: one made in between would be in the store alone.
func (s *Service) load(ctx context.Context) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	if err := s.entries.Load(ctx, nil); err != nil {
		return err
	}
	if err := s.loadRest(ctx); err != nil {
		return err
	}
	return s.agents.Load(ctx)
}

// loadRest reads what is not a collection.
func (s *Service) loadRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	cfg := DefaultConfig()
	if e, err := s.store.Get(ctx, keyConfig); err == nil {
		if err := json.Unmarshal(e.Value, &cfg); err != nil {
			return fmt.Errorf("stored configuration: %w", err)
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := errors.Join(s.punts.load(ctx), s.guards.load(ctx)); err != nil {
		return err
	}
	past, err := s.loadHistory(ctx)
	if err != nil {
		return err
	}
	live, err := s.loadLive(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.whitelist, s.remembered = cfg, inOrder(s.entries.Values()), live
	s.history = past
	s.history.trim(cfg.History)
	s.metrics.resume(past.totals)
	s.refreshView()
	return nil
}

// save writes a value to the store.
func (s *Service) save(ctx context.Context, key string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := s.store.Put(ctx, key, b); err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}

func (s *Service) unsave(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.store.Delete(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete %s from the store: %w", key, err)
	}
	return nil
}

// setConfig stores and applies a changed configuration.
func (s *Service) setConfig(ctx context.Context, ch ConfigChange) (Config, service.Faults, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	cfg, faults := ch.Apply(s.config)
	s.mu.Unlock()
	if len(faults) > 0 {
		return cfg, faults, nil
	}
	if err := s.save(ctx, keyConfig, cfg); err != nil {
		return cfg, nil, err
	}
	s.mu.Lock()
	s.config = cfg
	s.refreshView()
	s.mu.Unlock()
	s.publish("config.changed", cfg)
	s.applyPunts(ctx) // in force when the caller is told that it is; the keeper mends what fails
	s.wake()
	return cfg, nil, nil
}
