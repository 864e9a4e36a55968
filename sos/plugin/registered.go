package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/service"
)

// maxAgents bounds the agents; each costs a connection and a goroutine.
const maxAgents = 1024

// collectAgents returns the collection of the agents that are to be followed.
func (s *Service) collectAgents() *service.Collection[AgentRecord] {
	return service.NewCollection(service.Options[AgentRecord]{
		Kind: service.Kind[AgentRecord]{
			Noun: "agent", Nouns: "agents", Prefix: keyAgents, Event: "agent", Most: maxAgents, Contradicts: contradicts,
		},
		Store: s.store, Log: s.log, Publish: s.publish, Changed: s.registeredChanged,
	})
}

// contradicts says which other agent has an address of one, or its URL.
func contradicts(name string, r AgentRecord, all []service.Item[AgentRecord]) error {
	for _, x := range all {
		if x.Name == name {
			continue
		}
		for _, addr := range r.Addrs {
			if slices.Contains(x.Value.Addrs, addr) {
				return fmt.Errorf("data address %v is of agent %q: %w", addr, x.Name, service.ErrExists)
			}
		}
		if x.Value.URL == r.URL {
			return fmt.Errorf("control URL %s is of agent %q: %w", r.URL, x.Name, service.ErrExists)
		}
	}
	return nil
}

// registeredChanged follows agents that are new, and leaves those that have gone, or are
// others now under the same names.
func (s *Service) registeredChanged(_ context.Context, changes []service.Change[AgentRecord]) {
	for _, c := range changes {
		s.mu.Lock()
		a := s.agents[c.Name]
		gone := a != nil && (c.After == nil || !a.record.same(&c.After.Value))
		switch {
		case gone:
			a.record.Draining = true
			delete(s.agents, c.Name)
		case a != nil:
			a.record = c.After.Value
		}
		if c.After != nil && s.agents[c.Name] == nil {
			s.follow(c.After.Value, false)
		}
		s.refreshView()
		s.mu.Unlock()
		if gone {
			s.loseSessions(a, errors.New("removed by the operator"))
			a.stop()
			a.client.Close()
		}
	}
	s.wake()
}

// same says whether two records are of one agent process.
func (r *AgentRecord) same(o *AgentRecord) bool {
	return r.URL == o.URL && slices.Equal(r.Addrs, o.Addrs)
}

// addAgent stores an agent and starts to follow it.
func (s *Service) addAgent(ctx context.Context, r AgentRecord) error {
	r.Added = time.Now().UTC()
	return s.registered.Add(ctx, r.Name, r)
}

// removeAgent forgets an agent. With sessions it is refused unless forced; they
// then end as if the agent were lost.
func (s *Service) removeAgent(ctx context.Context, name string, force bool) error {
	s.mu.Lock()
	busy := 0
	if a := s.agents[name]; a != nil {
		busy = a.sessions
	}
	s.mu.Unlock()
	if busy > 0 && !force {
		return fmt.Errorf("it carries %d sessions: drain it first, or force: %w", busy, service.ErrInUse)
	}
	return s.registered.Remove(ctx, name, 0)
}

// drainAgent makes an agent take no new sessions, or take them again. It works
// for an agent that cannot be reached as well.
func (s *Service) drainAgent(ctx context.Context, name string, on bool) error {
	x, _ := s.registered.Item(name)
	r := x.Value
	r.Draining = on
	if err := s.registered.Replace(ctx, name, r, x.Revision); err != nil {
		return err
	}
	s.mu.Lock()
	a := s.agents[name]
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if st, err := a.client.Drain(ctx, on); err == nil {
		s.learn(a, st)
	}
	return nil
}
