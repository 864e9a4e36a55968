package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// Keys in the store.
const (
	keyConfig    = Name + "/config"
	keyWhitelist = Name + "/whitelist/"
	keyAgents    = Name + "/agents/"
)

// storeTimeout bounds each access to the store.
const storeTimeout = 5 * time.Second

// load reads configuration, whitelist, agents and edges from the store and starts to
// follow the agents. Changes wait: one made in between would be in the store alone.
func (s *Service) load(ctx context.Context) error {
	s.changes.Lock()
	defer s.changes.Unlock()
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
	entries, err := listJSON[Entry](ctx, s.store, keyWhitelist)
	if err != nil {
		return fmt.Errorf("read the whitelist: %w", err)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Added.Compare(b.Added) })
	records, err := listJSON[AgentRecord](ctx, s.store, keyAgents)
	if err != nil {
		return fmt.Errorf("read the agents: %w", err)
	}
	edges, err := listJSON[edge](ctx, s.store, keyEdges)
	if err != nil {
		return fmt.Errorf("read the switches with punt rules: %w", err)
	}
	guards, err := listJSON[guard](ctx, s.store, keyGuards)
	if err != nil {
		return fmt.Errorf("read the guards of agents: %w", err)
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
	s.config, s.whitelist, s.remembered = cfg, entries, live
	s.history = past
	s.history.trim(cfg.History)
	s.metrics.resume(past.totals)
	for _, e := range edges {
		s.edges[e.Switch] = e
	}
	for _, g := range guards {
		s.guards[g.Agent] = g
	}
	for _, r := range records {
		if err := s.follow(r, true); err != nil {
			s.log.Error("stored agent cannot be used", "agent", r.Name, "error", err)
		}
	}
	s.refreshView()
	return nil
}

func listJSON[T any](ctx context.Context, st store.Store, prefix string) ([]T, error) {
	entries, err := st.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &out[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	return out, nil
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

// follow makes an agent of a record, which may be a stored one, and starts to follow
// its events. The lock is held.
func (s *Service) follow(r AgentRecord, stored bool) error {
	client, err := s.dial(r)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	a := &agent{record: r, client: client, stop: stop, stored: stored, liveness: AgentUnknown, news: time.Now(), places: map[netip.Addr]place{}, missed: map[netip.Addr]bool{}}
	s.agents[r.Name] = a
	if !s.start(func(context.Context) { s.watchAgent(ctx, a) }) {
		client.Close()
	}
	return nil
}

func (s *Service) dial(r AgentRecord) (agentClient, error) {
	if s.opts.newClient != nil {
		return s.opts.newClient(r)
	}
	var options []agentapi.Option
	if s.opts.Dial != nil {
		options = append(options, agentapi.WithDialer(s.opts.Dial))
	}
	return agentapi.NewClient(r.URL, s.opts.AgentTLS, options...)
}

// SetConfig stores and applies a changed configuration.
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
	was := s.config.Enabled
	s.config = cfg
	s.refreshView()
	s.mu.Unlock()
	if was != cfg.Enabled {
		s.publish(map[bool]string{true: "enabled", false: "disabled"}[cfg.Enabled], nil)
	}
	s.publish("config-changed", cfg)
	s.applyPunts(ctx) // in force when the caller is told that it is; the keeper mends what fails
	s.wake()
	return cfg, nil, nil
}

// addEntry stores and applies a whitelist entry.
func (s *Service) addEntry(ctx context.Context, e Entry) (Entry, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	e.ID, e.Added = agentapi.NewSessionID().String()[:12], time.Now().UTC()
	s.mu.Lock()
	n := len(s.whitelist)
	var twin string
	if i := slices.IndexFunc(s.whitelist, func(o Entry) bool { return o.same(&e) }); i >= 0 {
		twin = s.whitelist[i].ID
	}
	s.mu.Unlock()
	if twin != "" {
		return e, fmt.Errorf("%w: entry %s allows the same connections at that time; remove it first", service.ErrExists, twin)
	}
	if n >= maxEntries {
		return e, fmt.Errorf("%w: %d whitelist entries", service.ErrFull, n)
	}
	if err := s.save(ctx, keyWhitelist+e.ID, e); err != nil {
		return e, err
	}
	s.mu.Lock()
	s.whitelist = append(slices.Clip(s.whitelist), e)
	s.refreshView()
	s.mu.Unlock()
	s.publish("whitelist-added", e)
	s.applyPunts(ctx) // in force when the caller is told that it is; the keeper mends what fails
	s.wake()
	return e, nil
}

// removeEntry removes a whitelist entry; sessions that it allowed go on.
func (s *Service) removeEntry(ctx context.Context, id string) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	i := slices.IndexFunc(s.whitelist, func(e Entry) bool { return e.ID == id })
	s.mu.Unlock()
	if i < 0 {
		return service.ErrUnknown
	}
	if err := s.unsave(ctx, keyWhitelist+id); err != nil {
		return err
	}
	s.mu.Lock()
	s.whitelist = slices.Delete(slices.Clone(s.whitelist), i, i+1)
	s.refreshView()
	s.mu.Unlock()
	s.publish("whitelist-removed", map[string]string{"id": id})
	s.applyPunts(ctx) // in force when the caller is told that it is; the keeper mends what fails
	s.wake()
	return nil
}

// addAgent stores an agent and starts to follow it.
func (s *Service) addAgent(ctx context.Context, r AgentRecord) (AgentRecord, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	r.Added = time.Now().UTC()
	s.mu.Lock()
	err := s.agentConflict(r)
	s.mu.Unlock()
	if err != nil {
		return r, err
	}
	if err := s.save(ctx, keyAgents+r.Name, r); err != nil {
		return r, err
	}
	s.mu.Lock()
	if old := s.agents[r.Name]; old != nil {
		old.stop()
		old.client.Close()
	}
	err = s.follow(r, false)
	s.refreshView()
	s.mu.Unlock()
	if err != nil {
		return r, err
	}
	s.publish("agent-added", r)
	s.wake()
	return r, nil
}

// maxAgents bounds the agents; each costs a connection and a goroutine.
const maxAgents = 1024

// agentConflict says what stands against adding the agent. The lock is held.
func (s *Service) agentConflict(r AgentRecord) error {
	if len(s.agents) >= maxAgents {
		return fmt.Errorf("%w: %d agents", service.ErrFull, len(s.agents))
	}
	for name, a := range s.agents {
		if name == r.Name {
			return fmt.Errorf("agent %q: %w", name, service.ErrExists)
		}
		for _, addr := range r.Addrs {
			if slices.Contains(a.record.Addrs, addr) {
				return fmt.Errorf("data address %v, of agent %q: %w", addr, name, service.ErrExists)
			}
		}
		if a.record.URL == r.URL {
			return fmt.Errorf("control URL %s, of agent %q: %w", r.URL, name, service.ErrExists)
		}
	}
	return nil
}

// removeAgent forgets an agent. With sessions it is refused unless forced; they
// then end as if the agent were lost.
func (s *Service) removeAgent(ctx context.Context, name string, force bool) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	a := s.agents[name]
	busy := 0
	if a != nil {
		busy = a.sessions
	}
	s.mu.Unlock()
	switch {
	case a == nil:
		return service.ErrUnknown
	case busy > 0 && !force:
		return fmt.Errorf("%w: it carries %d sessions: drain it first, or force", service.ErrExists, busy)
	}
	if err := s.unsave(ctx, keyAgents+name); err != nil {
		return err
	}
	s.mu.Lock()
	a.record.Draining = true
	delete(s.agents, name)
	s.refreshView()
	s.mu.Unlock()
	s.publish("agent-removed", map[string]string{"agent": name})
	s.loseSessions(a, errors.New("removed by the operator"))
	a.stop()
	a.client.Close()
	return nil
}

// drainAgent makes an agent take no new sessions, or take them again. It works
// for an agent that cannot be reached as well.
func (s *Service) drainAgent(ctx context.Context, name string, on bool) (AgentRecord, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	a := s.agents[name]
	if a == nil {
		s.mu.Unlock()
		return AgentRecord{}, service.ErrUnknown
	}
	r := a.record
	s.mu.Unlock()
	r.Draining = on
	if err := s.save(ctx, keyAgents+name, r); err != nil {
		return r, err
	}
	s.mu.Lock()
	a.record = r
	s.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if st, err := a.client.Drain(limited, on); err == nil {
		s.learn(a, st)
	}
	s.publish("agent-draining", map[string]any{"agent": name, "on": on})
	return r, nil
}
