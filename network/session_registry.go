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

var errDuplicate = errors.New("another switch with this datapath id is connected and answers")

// registry has the sessions with switches, each under the identifier of its switch.
type registry struct {
	mu  sync.Mutex
	all map[openflow.DatapathID]*Switch // registered, perhaps not up yet
	// up are those that are up. The hot path reads them without locking.
	up atomic.Pointer[map[openflow.DatapathID]*Switch]
}

func newRegistry() *registry {
	r := &registry{all: map[openflow.DatapathID]*Switch{}}
	r.up.Store(&map[openflow.DatapathID]*Switch{})
	return r
}

// get finds a switch that is up.
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

// list lists the switches that are up, by datapath identifier.
func (r *registry) list() []*Switch {
	m := *r.up.Load()
	out := make([]*Switch, 0, len(m))
	for _, d := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[d])
	}
	return out
}

// portUp says whether a port is there and up. It is not known while its switch is not.
func (r *registry) portUp(at PortRef) (up, known bool) {
	s, ok := r.get(at.Switch)
	if !ok {
		return false, false
	}
	p, ok := s.Port(at.Port)
	return ok && p.Up(), true
}

// reachable says whether a switch is connected and a port of it up.
func (r *registry) reachable(at PortRef) bool {
	up, _ := r.portUp(at)
	return up
}

// accepting finds a registered switch that takes changes: from the moment its
// reconciliation begins.
func (r *registry) accepting(d openflow.DatapathID) *Switch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.all[d]; s != nil && s.acceptsChanges {
		return s
	}
	return nil
}

// markAccepting has a registered switch take changes from now on.
func (r *registry) markAccepting(s *Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.acceptsChanges = true
}

// registered lists the switches that have a session, up or not yet.
func (r *registry) registered() []openflow.DatapathID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all))
}

// register makes s the session of its datapath identifier. A session that has
// the identifier already is asked for a sign of life: if it answers, s is a
// duplicate and refused; if not, it is a leftover of a broken connection.
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

// markUp makes a reconciled switch part of the network. It is false for a session that has
// ended.
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

// markDown takes an ended session out of those that are up. It stays registered until it is
// removed: the next session of the switch waits for that.
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

// remove takes a session out altogether.
func (r *registry) remove(s *Switch) {
	r.mu.Lock()
	delete(r.all, s.dpid)
	r.mu.Unlock()
	close(s.unregistered)
}

// update replaces the map that is read without locking; the mutex is held.
func (r *registry) update(f func(map[openflow.DatapathID]*Switch)) {
	m := maps.Clone(*r.up.Load())
	f(m)
	r.up.Store(&m)
}

// expireHeld forwards packets whose service has not decided in time.
func (r *registry) expireHeld(now time.Time) {
	for s := range maps.Values(*r.up.Load()) {
		for _, h := range s.held.expired(now) {
			if err := h.Forward(); err != nil {
				s.logLimiter.Warn(s.n.cfg.Log, "forwarding a packet held too long", "switch", s.dpid, "error", err)
			}
		}
	}
}

// aliveTimeout is how long a session has to prove that it lives.
const aliveTimeout = time.Second

// Alive asks the switch for a sign of life and waits for it for at most a second.
// A session may outlast the way to its switch by EchoTimeout.
func (s *Switch) Alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	_, err := s.ch.call(ctx, &openflow.EchoRequest{Data: []byte("alive?")})
	return err == nil
}
