package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// An agent of which the controller hears nothing may be dead, or behind a way that
// is down while it carries its sessions well, or will again: TCP outlives an outage,
// so its sessions have to. What tells the two apart is asked of whoever can know.
const (
	// judgeEvery is how often those who may know are asked.
	judgeEvery = 250 * time.Millisecond
	// askPartner bounds an agent's answer about another.
	askPartner = 500 * time.Millisecond
	// heardWithin is the silence of a peer that an agent takes for life: peers
	// speak twice a second.
	heardWithin = 1200 * time.Millisecond
	// knockTimeout bounds how long an agent's machine may take to answer, and
	// knockAgain is how long its answer holds.
	knockTimeout = 400 * time.Millisecond
	knockAgain   = time.Second
	// hungFor is how long an agent may say nothing to anybody while its machine
	// says that it runs: it may be stopped for good, or have no processor for now.
	hungFor = 15 * time.Second
)

var (
	errNotRunning = errors.New("its machine refuses connections: it does not run")
	errUnplugged  = errors.New("its port is down")
	errNoAnswer   = errors.New("its switch answers, but its machine does not, nor does the other agent hear it")
	errHung       = fmt.Errorf("it runs, but has said nothing for %v", hungFor)
)

// judgeWhileSilent ends the sessions of a silent agent as soon as something says
// that it is dead, until it is heard again or removed.
func (s *Service) judgeWhileSilent(ctx context.Context, a *agent) {
	for {
		s.mu.Lock()
		silent := a.liveness == AgentSilent && s.agents[a.record.Name] == a
		s.mu.Unlock()
		if !silent {
			return
		}
		s.judge(ctx, a)
		if tasks.Sleep(ctx, judgeEvery) != nil {
			return
		}
	}
}

// judge ends those of a silent agent's sessions of which it is the dead end.
func (s *Service) judge(ctx context.Context, a *agent) {
	sessions := s.sessionsOf(a)
	if len(sessions) == 0 {
		return
	}
	if err := s.dead(a); err != nil {
		s.loseThose(sessions, a, err)
		return
	}
	partners := map[*agent][]*session{}
	for _, ss := range sessions {
		o := ss.client
		if o == a {
			o = ss.server
		}
		partners[o] = append(partners[o], ss)
	}
	lifeless := sync.OnceValue(func() error { return s.lifeless(ctx, a) })
	var all sync.WaitGroup
	for o, those := range partners {
		all.Go(func() {
			if !unheard(ctx, o, a) {
				return
			}
			if err := lifeless(); err != nil {
				s.loseThose(those, a, err)
			}
		})
	}
	all.Wait()
}

// lifeless says why an agent is dead that no other agent hears either, or nil. An
// agent that gets no processor says nothing, but its machine answers for it.
func (s *Service) lifeless(ctx context.Context, a *agent) error {
	s.mu.Lock()
	answered, silentSince, patience := a.answered, a.silentSince, min(hungFor, time.Duration(s.config.PeerTimeout))
	s.mu.Unlock()
	if time.Since(answered) < knockAgain {
		return nil
	}
	answer := make(chan error, 1)
	go func() { answer <- knock(ctx, a) }()
	near := s.switchAnswers(ctx, a)
	switch err := <-answer; {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errNotRunning
	case err != nil && near:
		return errNoAnswer
	case err != nil: // the network may be down there
		return nil
	}
	if near && time.Since(silentSince) > patience {
		return errHung
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.answered = time.Now()
	return nil
}

// knock asks an agent's machine whether anybody listens at its control port: twice
// at once, since one packet may be lost.
func knock(ctx context.Context, a *agent) error {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	errs := bothRoles(func(int, agentapi.Role) error { return a.client.Knock(ctx) })
	if errs[0] == nil {
		return nil
	}
	return errs[1]
}

// dead says why a silent agent is dead without asking anybody, or nil. Its port is
// watched apart.
func (s *Service) dead(a *agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	patience := time.Duration(s.config.PeerTimeout)
	switch {
	case a.refused:
		return errNotRunning
	case time.Since(a.silentSince) > patience:
		return fmt.Errorf("silent for %v", patience)
	}
	return nil
}

// unheard reports whether agent o answers, and says that it does not hear its peer
// a. What either knows of its addresses is fixed.
func unheard(ctx context.Context, o, a *agent) bool {
	ctx, cancel := context.WithTimeout(ctx, askPartner)
	defer cancel()
	st, err := o.client.Status(ctx)
	return err == nil && !slices.ContainsFunc(st.Peers, func(p agentapi.PeerStatus) bool {
		return time.Duration(p.Silence) <= heardWithin && slices.Contains(a.record.Addrs, p.Addr)
	})
}

// switchAnswers asks the switches at which the agent stands for a sign of life.
func (s *Service) switchAnswers(ctx context.Context, a *agent) bool {
	ports := s.portsOf(a)
	for _, at := range ports {
		if !s.net.Alive(ctx, at.Switch) {
			return false
		}
	}
	return len(ports) > 0
}

// sessionsOf lists the live sessions of an agent.
func (s *Service) sessionsOf(a *agent) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*session
	for _, ss := range s.sessions {
		if ss.state == StateLive && (ss.client == a || ss.server == a) {
			out = append(out, ss)
		}
	}
	return out
}
