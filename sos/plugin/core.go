package plugin

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// core is what all parts of the service share.
type core struct {
	net     service.Network
	rules   service.Ledger
	store   store.Store
	bus     *event.Bus
	log     *slog.Logger
	strange lograte.Limit // lines that any client can cause
	opts    Options
	metrics *metrics
	agents  *registry
	// treatments are what others promise to the connections.
	treatments *network.Treatments

	// tasks are the goroutines that Run waits for; ctx, theirs, ends when Run ends.
	tasks *tasks.Group
	ctx   context.Context
	// resync keeps punt rules and paths up to date.
	resync service.Loop

	// mu guards what follows, and what changes in the parts and in their sessions.
	mu      sync.Mutex
	running bool
	began   time.Time // when the start was over
	config  Config
}

// start runs f in a goroutine that Run waits for. It does nothing after the end.
func (s *core) start(f func(context.Context)) bool { return s.tasks.Start(f) }

// wake has punt rules and paths looked at again.
func (s *core) wake() { s.resync.Wake() }

// publish puts an event on the bus.
func (s *core) publish(kind string, attrs any) {
	if s.bus != nil {
		s.bus.Publish(Name+"."+kind, attrs)
	}
}

// settings are the configuration now.
func (s *core) settings() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// isLive says whether a session is live now.
func (s *core) isLive(ss *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ss.state == StateLive
}

// beganWithin says whether the start has been over for less than d.
func (s *core) beganWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.began) < d
}

// anchorOf tells where an address is anchored, nil if it does not move.
func (s *core) anchorOf(a netip.Addr) *network.Anchor {
	if anchor, moves := s.net.Anchored(a); moves {
		return &anchor
	}
	return nil
}

// seesTCPFlags says whether a switch's rules can match TCP's flags.
func (s *core) seesTCPFlags(d openflow.DatapathID) bool {
	can, _ := s.net.CanMatch(d, openflow.FieldTCPFlags)
	return can
}

// puntsSYN says whether first packets of connections go on coming up where a side's
// packets come in.
func (s *core) puntsSYN(sd *Side) bool {
	return !slices.ContainsFunc(sd.ways(), func(way []network.Hop) bool { return !s.seesTCPFlags(way[0].Switch) })
}

// rulesOf are those of one side of a session, with the queues of what is promised to it.
func (s *core) rulesOf(l *Layout, r agentapi.Role) ([]network.Rule, error) {
	rules, err := l.rulesOf(r, s.net.CanSet)
	if err != nil {
		return nil, err
	}
	return l.queued(r, rules, s.treatments.Queue), nil
}

// writeSide writes the rules between one end host and its agent as a layout has them,
// and more, and waits until the switches have them.
func (s *core) writeSide(ctx context.Context, ss *session, l *Layout, r agentapi.Role, options rule.ApplyOptions, more ...network.Rule) error {
	rules, err := s.rulesOf(l, r)
	if err != nil {
		return err
	}
	return s.rules.Apply(ctx, ss.key(r), rule.Program{Rules: append(rules, more...)}, options)
}

// abort makes the agents reset and forget a session; those that are nil are
// left out.
func (s *core) abort(id agentapi.SessionID, of ...*agent) {
	of = slices.DeleteFunc(of, func(a *agent) bool { return a == nil })
	agents.Together(context.WithoutCancel(s.ctx), undoTimeout, of, func(ctx context.Context, _ int, a *agent) error {
		err := a.Client.Abort(ctx, id)
		if err != nil && control.CodeOf(err) != control.CodeNotFound {
			s.log.Debug("session could not be aborted", "agent", a.Name, "session", id, "error", err)
		}
		return nil
	})
}
