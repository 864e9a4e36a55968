package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

var errDuplicate = errors.New("another switch with this datapath id is connected and answers")

// session finds a registered switch that takes changes: from the moment its
// reconciliation begins.
func (n *Network) session(d openflow.DatapathID) *Switch {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.all[d]; s != nil && s.accepting {
		return s
	}
	return nil
}

// registered lists the switches that have a session, up or not yet.
func (n *Network) registered() []openflow.DatapathID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.all))
}

// owners lists all owners.
func (n *Network) owners() []*Owner {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.byHash))
}

// register makes s the session of its datapath identifier. A session that has
// the identifier already is asked for a sign of life: if it answers, s is a
// duplicate and refused; if not, it is a leftover of a broken connection.
func (n *Network) register(ctx context.Context, s *Switch) error {
	for {
		n.mu.Lock()
		old := n.all[s.dpid]
		if old == nil {
			n.all[s.dpid] = s
			n.mu.Unlock()
			return nil
		}
		n.mu.Unlock()
		if old.Alive(ctx) {
			return fmt.Errorf("%w (from %v)", errDuplicate, old.conn.RemoteAddr())
		}
		old.close(errors.New("replaced by a new connection of the same switch"))
		select {
		case <-old.gone:
		case <-ctx.Done():
			return ctx.Err()
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
	_, err := s.call(ctx, &openflow.EchoRequest{Data: []byte("alive?")})
	return err == nil
}

// goUp makes a reconciled switch part of the network.
func (n *Network) goUp(s *Switch) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all[s.dpid] != s || s.ended() {
		return false
	}
	s.upAt = time.Now()
	n.changeUp(func(m map[openflow.DatapathID]*Switch) { m[s.dpid] = s })
	s.up.Store(true)
	n.homes.note(hostOf(s.RemoteAddr()), s.upAt)
	return true
}

// unregister takes an ended session out of the network. The next session of the
// switch waits until it has: what is told of one comes before what is told of the next.
func (n *Network) unregister(s *Switch) {
	n.mu.Lock()
	if n.all[s.dpid] != s {
		n.mu.Unlock()
		return
	}
	wasUp := s.up.Swap(false)
	if wasUp {
		n.changeUp(func(m map[openflow.DatapathID]*Switch) { delete(m, s.dpid) })
	}
	n.mu.Unlock()
	if wasUp {
		n.homes.note(hostOf(s.RemoteAddr()), time.Now())
		<-s.announced
		n.switchDown(s)
	}
	n.forgetEvery(s.dpid)
	n.mu.Lock()
	delete(n.all, s.dpid)
	n.mu.Unlock()
	close(s.gone)
}

// changeUp replaces the map that the hot path reads without locking; the mutex is held.
func (n *Network) changeUp(change func(map[openflow.DatapathID]*Switch)) {
	m := maps.Clone(*n.switches.Load())
	change(m)
	n.switches.Store(&m)
}
