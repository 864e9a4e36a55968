package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// errDuplicate is returned for a second connection with the datapath identifier of a live session.
var errDuplicate = errors.New("another switch with this datapath id is connected and answers")

// registry holds the sessions by the datapath identifiers of their switches.
type registry struct {
	mu  sync.Mutex
	all map[openflow.DatapathID]*Switch // registered; not all are up
	// up holds the sessions that are up. The hot path reads it without locking.
	up atomic.Pointer[map[openflow.DatapathID]*Switch]
}

func newRegistry() *registry {
	r := &registry{all: map[openflow.DatapathID]*Switch{}}
	r.up.Store(&map[openflow.DatapathID]*Switch{})
	return r
}

// get returns the session of a switch that is up.
func (r *registry) get(d openflow.DatapathID) (*Switch, bool) {
	s, ok := (*r.up.Load())[d]
	return s, ok
}

// mustBeUp is get with an error for a switch that is not up.
func (r *registry) mustBeUp(d openflow.DatapathID) (*Switch, error) {
	s, ok := r.get(d)
	if !ok {
		return nil, fmt.Errorf("switch %v: %w", d, ErrSwitchDown)
	}
	return s, nil
}

// list returns the switches that are up, ordered by datapath identifier.
func (r *registry) list() []*Switch {
	m := *r.up.Load()
	out := make([]*Switch, 0, len(m))
	for _, d := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[d])
	}
	return out
}

// portUp reports whether a port exists and is up, and whether its state is known: it is unknown
// while the port's switch is down.
func (r *registry) portUp(at PortRef) (up, known bool) {
	s, ok := r.get(at.Switch)
	if !ok {
		return false, false
	}
	p, ok := s.Port(at.Port)
	return ok && p.Up(), true
}

// reachable reports whether the switch is connected and the port up.
func (r *registry) reachable(at PortRef) bool {
	up, _ := r.portUp(at)
	return up
}

// accepting returns the session of a registered switch that accepts changes, or nil. A switch
// accepts them from the beginning of its reconciliation.
func (r *registry) accepting(d openflow.DatapathID) *Switch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.all[d]; s != nil && s.acceptsChanges {
		return s
	}
	return nil
}

// markAccepting makes a registered switch accept changes.
func (r *registry) markAccepting(s *Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.acceptsChanges = true
}

// registered returns the switches that have a session, whether it is up or not.
func (r *registry) registered() []openflow.DatapathID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all))
}

// register makes s the session of its datapath identifier. If another session has the identifier,
// register asks that switch for an answer: if it answers, s is a duplicate and is refused; if not,
// the session is left from a broken connection and is closed.
func (r *registry) register(ctx context.Context, s *Switch) error {
	for {
		r.mu.Lock()
		old := r.all[s.dpid]
		if old == nil {
			r.all[s.dpid] = s
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		if old.Alive(ctx) {
			return fmt.Errorf("%w (from %v)", errDuplicate, old.conn.RemoteAddr())
		}
		old.ch.close(errors.New("replaced by a new connection of the same switch"))
		select {
		case <-old.unregistered:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// markUp makes a reconciled switch part of the network. It returns false if the session has ended.
func (r *registry) markUp(s *Switch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[s.dpid] != s || s.ch.ended() {
		return false
	}
	s.upAt = time.Now()
	r.update(func(m map[openflow.DatapathID]*Switch) { m[s.dpid] = s })
	s.up.Store(true)
	return true
}

// markDown removes an ended session from those that are up. The session stays registered until
// remove is called, which the switch's next session waits for.
func (r *registry) markDown(s *Switch) (registered, wasUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[s.dpid] != s {
		return false, false
	}
	if wasUp = s.up.Swap(false); wasUp {
		r.update(func(m map[openflow.DatapathID]*Switch) { delete(m, s.dpid) })
	}
	return true, wasUp
}

// remove removes a session from the registry.
func (r *registry) remove(s *Switch) {
	r.mu.Lock()
	delete(r.all, s.dpid)
	r.mu.Unlock()
	close(s.unregistered)
}

// update replaces the map that is read without locking. The mutex is held.
func (r *registry) update(f func(map[openflow.DatapathID]*Switch)) {
	m := maps.Clone(*r.up.Load())
	f(m)
	r.up.Store(&m)
}

// expireHeld forwards the packets whose handlers have not decided in time.
func (r *registry) expireHeld(now time.Time) {
	for s := range maps.Values(*r.up.Load()) {
		for _, h := range s.held.expired(now) {
			if err := h.Forward(); err != nil {
				s.logLimiter.Warn(s.n.cfg.Log, "forwarding a packet held too long", "switch", s.dpid, "error", err)
			}
		}
	}
}

// aliveTimeout is how long Alive waits for an answer.
const aliveTimeout = time.Second

// Alive reports whether the switch answers an echo request within a second. A session may outlive
// the path to its switch by EchoTimeout.
func (s *Switch) Alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	_, err := s.ch.call(ctx, &openflow.EchoRequest{Data: []byte("alive?")})
	return err == nil
}
