package sos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// maxSalts bounds how often new path tags are computed for a pair because another pair uses one of
// the tags.
const maxSalts = 4

// loadAge is how long the measured load of a link may still contain what a pair has sent. Loads are
// measured every few seconds.
const loadAge = 10 * time.Second

// pair holds the rules that all sessions between two agents share. users is the number of the
// sessions, held whether the rules stay without sessions, treatments the number of sessions with
// each treatment, released the time at which the last session ended, and paths the paths that
// packets take; the service's lock guards these five. mu guards the other fields.
type pair struct {
	key        string
	users      int
	held       bool
	treatments map[pairTreatment]int
	released   time.Time
	paths      [][]network.Hop

	mu       sync.Mutex
	steering Steering
	applied  bool
}

// current returns the steering whose rules are in the switches.
func (p *pair) current() Steering {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steering
}

// terminal returns an agent as an end of a pair's path, and the port to which the agent is
// connected.
func terminal(a *agent, addr netip.Addr) (Terminal, network.PortRef) {
	st := a.State()
	p := st.Places[addr]
	return Terminal{Addr: addr, MAC: p.MAC, VLAN: p.VLAN, DataPorts: st.Status.DataPorts}, p.At
}

// pairEnds names two agents, and their addresses, as the ends of the paths between them.
type pairEnds struct {
	client, server         *agent
	clientAddr, serverAddr netip.Addr
	paths                  int  // number of paths that are wanted
	routed                 bool // whether a router connects the agents
}

func (e *pairEnds) key() string { return pairKey(e.clientAddr, e.serverAddr) }

// ends returns the session's agents as the ends of the paths between them. The service's lock is
// held.
func (ss *session) ends() pairEnds {
	l := &ss.Layout
	return pairEnds{ss.client, ss.server, l.ClientSide.Agent, l.ServerSide.Agent, max(ss.Tuning.Paths, 1), l.PeersRouted}
}

// pairs holds the paths between agents, and the treatments that apply on them.
type pairs struct {
	*core
	all map[string]*pair // by key; guarded by the lock
}

// acquire writes the rules between the session's agents, for at least the number of paths that the
// session requests. After each success, the caller has to call release.
func (s *pairs) acquire(ctx context.Context, ss *session) error {
	s.mu.Lock()
	ends := ss.ends()
	p := s.of(ends.key())
	p.users++
	first := p.users == 1
	ss.pair = p.key
	s.countTreatments(ss)
	s.mu.Unlock()
	want, err := s.steering(ends)
	if err == nil {
		err = s.apply(ctx, p, want)
	}
	if err != nil {
		s.release(ss)
		return fmt.Errorf("%w, between the agents: %w", errRules, err)
	}
	s.notePaths(ss, want)
	if first {
		s.divide.Wake()
	}
	return nil
}

// of returns the pair with a key, and creates it if necessary. The lock is held.
func (s *pairs) of(key string) *pair {
	p := s.all[key]
	if p == nil {
		p = &pair{key: key, treatments: map[pairTreatment]int{}}
		s.all[key] = p
	}
	return p
}

// hold writes the rules between two agents, or new ones if their path has changed, and keeps them
// without sessions until the pair is dropped.
func (s *pairs) hold(ctx context.Context, ends pairEnds) error {
	s.mu.Lock()
	p := s.of(ends.key())
	p.held = true
	s.mu.Unlock()
	want, err := s.steering(ends)
	if err == nil && len(want.Paths) == 0 && len(p.current().Paths) > 0 {
		return nil // the old rules stay until there is another path
	}
	if err == nil {
		err = s.apply(ctx, p, want)
	}
	if err != nil {
		return fmt.Errorf("%w, between the agents: %w", errRules, err)
	}
	return nil
}

// drop undoes hold.
func (s *pairs) drop(ctx context.Context, key string) {
	s.mu.Lock()
	p := s.all[key]
	if p != nil {
		p.held = false
	}
	s.mu.Unlock()
	if p != nil {
		s.remove(ctx, p)
	}
}

// notePaths stores the paths between the session's agents in the session, for its record.
func (s *pairs) notePaths(ss *session, steering Steering) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.agentPaths, ss.carriedBetween = nil, nil
	for _, x := range ss.treatments {
		ss.carriedBetween = append(ss.carriedBetween, steering.carriedPorts(x)...)
	}
	for _, path := range steering.Paths {
		ss.agentPaths = append(ss.agentPaths, hops(path))
	}
}

// steering computes the steering between two agents. If the topology has no path between them, or a
// router is on it, a network that this controller does not manage connects the agents, and no rules
// are needed.
func (s *pairs) steering(ends pairEnds) (Steering, error) {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	xAddr, yAddr := ends.clientAddr, ends.serverAddr
	a, from := terminal(ends.client, xAddr)
	b, to := terminal(ends.server, yAddr)
	if yAddr.Less(xAddr) {
		a, from, b, to = b, to, a, from
	}
	if a.MAC.IsZero() || b.MAC.IsZero() {
		return Steering{}, fmt.Errorf("%v or %v has not been found in the network", xAddr, yAddr)
	}
	st := Steering{X: a, Y: b}
	if !ends.routed {
		st.Paths = routes(top, from, to, ends.paths, s.config.metric())
	}
	if p := s.all[ends.key()]; p != nil {
		st.addTreatments(p.sortedTreatments(), s.treatments.Queue)
	}
	return st, nil
}

// routes returns up to n paths between two ports. The paths share no link.
func routes(top *topology.Topology, from, to network.PortRef, n int, m network.Metric) [][]network.Hop {
	if n > 1 && from.Switch != to.Switch {
		var out [][]network.Hop
		for _, p := range top.DisjointPaths(from, to, n, m) {
			out = append(out, p.Hops)
		}
		return out
	}
	if p, ok := top.Path(from, to, m); ok {
		return [][]network.Hop{p.Hops}
	}
	return nil
}

// apply writes the pair's rules unless the present ones serve want. A pair that has more paths than
// a session requests keeps them.
func (s *pairs) apply(ctx context.Context, p *pair, want Steering) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied && p.steering.serves(want) && valid(s.net.Topology(), p.steering.Paths) {
		return nil
	}
	for salt := range uint32(maxSalts) {
		want.Salt = salt
		rules, err := want.Rules(s.net.CanSet)
		if err != nil {
			return err
		}
		err = s.rules.Apply(ctx, p.key, rule.Program{Rules: rules}, rule.ApplyOptions{})
		if errors.Is(err, network.ErrConflict) {
			continue
		}
		if err == nil {
			p.steering, p.applied = want, true
			s.mu.Lock()
			if p.paths = want.Paths; !want.taggable(s.net.CanSet) {
				p.paths = want.Paths[:min(len(want.Paths), 1)]
			}
			s.mu.Unlock()
		}
		return err
	}
	return fmt.Errorf("%s: %w: path tags collide with those of other agents", p.key, network.ErrConflict)
}

// serves reports whether the rules of s serve the sessions for which want was computed.
func (s Steering) serves(want Steering) bool {
	same := func(a, b Terminal) bool {
		return a.Addr == b.Addr && a.MAC == b.MAC && a.VLAN == b.VLAN && slices.Equal(a.DataPorts, b.DataPorts)
	}
	if !same(s.X, want.X) || !same(s.Y, want.Y) || len(s.Paths) < len(want.Paths) || !slices.EqualFunc(s.Treatments, want.Treatments, TreatmentQueues.equal) {
		return false
	}
	for _, a := range s.Paths {
		for _, b := range want.Paths {
			if len(a) > 0 && len(b) > 0 && (a[0].In != b[0].In || a[len(a)-1].Out != b[len(b)-1].Out) {
				return false
			}
		}
	}
	return true
}

// release undoes acquire. When no session uses the rules any more, they are removed after a short
// delay, so that a new session still finds them.
func (s *pairs) release(ss *session) {
	s.mu.Lock()
	p := s.all[ss.pair]
	idle := false
	if p != nil {
		for _, x := range ss.treatments {
			p.treatments[x]--
		}
		p.users--
		if idle = p.users == 0; idle {
			p.released = time.Now()
		}
	}
	ss.pair, ss.treatments = "", nil
	s.mu.Unlock()
	if idle {
		s.divide.Wake()
		s.start(func(ctx context.Context) {
			if tasks.Sleep(ctx, 5*s.opts.Linger) == nil {
				s.remove(ctx, p)
			}
		})
	}
}

// remove removes the rules of a pair without users.
func (s *pairs) remove(ctx context.Context, p *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mu.Lock()
	unused := p.users == 0 && !p.held && s.all[p.key] == p
	s.mu.Unlock()
	if !unused || !p.applied {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.rules.Remove(ctx, p.key); err != nil {
		s.log.Warn("rules between agents could not be removed", "pair", p.key, "error", err)
	}
	p.applied = false
}

// reroute recomputes the paths between a session's agents, and rewrites the rules if the paths have
// changed.
func (s *pairs) reroute(ctx context.Context, ss *session) {
	s.mu.Lock()
	p, ends := s.all[ss.pair], ss.ends()
	s.mu.Unlock()
	if p == nil {
		return
	}
	was := p.current()
	want, err := s.steering(ends)
	if err != nil || len(want.Paths) == 0 && len(was.Paths) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rerouteTimeout)
	defer cancel()
	if err := s.apply(ctx, p, want); err != nil {
		s.log.Warn("agents keep their path: rules for the new one could not be written", "pair", p.key, "error", err)
		return
	}
	if now := p.current(); !slices.EqualFunc(was.Paths, now.Paths, slices.Equal[[]network.Hop]) {
		s.metrics.reroutes.Inc()
		s.notePaths(ss, now)
		s.publish("agents.rerouted", map[string]any{"pair": p.key})
		s.log.Info("agents have a new path", "pair", p.key, "paths", len(now.Paths))
	}
}

// valid reports whether every hop and link of the paths still exists.
func valid(top *topology.Topology, paths [][]network.Hop) bool {
	for _, path := range paths {
		for i, h := range path {
			if !top.Has(h.Switch) {
				return false
			}
			if i+1 == len(path) {
				continue
			}
			if link, ok := top.LinkFrom(outPort(h)); !ok || link.To != inPort(path[i+1]) {
				return false
			}
		}
	}
	return true
}

// knownPaths returns the network's knowledge about the paths between two agents, in the direction in
// which the agent from sends. Agents that have never exchanged data start at the rates of these
// paths.
func (s *pairs) knownPaths(ends pairEnds, from agentapi.Role) []agentapi.Path {
	if ends.routed {
		return nil
	}
	top := s.net.Topology()
	s.mu.Lock()
	_, a := terminal(ends.client, ends.clientAddr)
	_, b := terminal(ends.server, ends.serverAddr)
	metric := s.config.metric()
	s.mu.Unlock()
	if from == agentapi.RoleServer {
		a, b = b, a
	}
	sharers := s.sharers(ends.key(), time.Now())
	var out []agentapi.Path
	known := false
	for _, hops := range routes(top, a, b, ends.paths, metric) {
		path := estimatePath(top, hops, sharers)
		out, known = append(out, path), known || path != agentapi.Path{}
	}
	if !known {
		return nil
	}
	return out
}

// sharers returns, for each link that pairs with sessions use, the number of pairs among which the
// link is divided: these pairs and the one with the given key. The links are named by the ports from
// which they lead, in both directions. A pair counts until loadAge after its last session.
func (s *pairs) sharers(key string, now time.Time) map[network.PortRef]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[network.PortRef]int{}
	for _, p := range s.all {
		if p.users == 0 && now.Sub(p.released) > loadAge {
			continue
		}
		for _, path := range p.paths {
			for i, h := range path[:len(path)-1] {
				for _, from := range []network.PortRef{outPort(h), inPort(path[i+1])} {
					if all[from] = max(all[from], 1); p.key != key {
						all[from]++
					}
				}
			}
		}
	}
	return all
}

// estimatePath returns the capacity of a path's links that its sender may use, and its round-trip
// time. Of each link that is the free capacity, or the sender's equal share if that is more: the
// measured load contains what the sharers send, who will send less. The capacity is used only if the
// operator has declared that of the slowest link. Otherwise ports report the speed of their cables,
// although the network behind them may be slower.
func estimatePath(top *topology.Topology, hops []network.Hop, sharers map[network.PortRef]int) agentapi.Path {
	var slowest topology.Link
	least := uint64(math.MaxUint64)
	rtt, measured := time.Duration(0), true
	for _, h := range hops[:len(hops)-1] {
		l, ok := top.LinkFrom(outPort(h))
		back, okBack := top.LinkFrom(l.To)
		if !ok || !okBack {
			return agentapi.Path{}
		}
		rtt += l.Latency + back.Latency
		measured = measured && l.Latency > 0 && back.Latency > 0 && l.Capacity > 0
		if slowest.Capacity == 0 || l.Capacity < slowest.Capacity {
			slowest = l
		}
		if l.Declared {
			share := l.Available()
			if n := sharers[l.From]; n > 0 {
				share = max(share, l.Capacity/uint64(n))
			}
			least = min(least, share)
		}
	}
	if !slowest.Declared || !measured {
		return agentapi.Path{}
	}
	return agentapi.Path{Rate: least, RTT: control.Duration(rtt)}
}
