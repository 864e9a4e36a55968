package sos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// Which pairs are likely is examined every warmTick, and warmDebounce after a change of the network,
	// the agents or the whitelist.
	warmTick, warmDebounce = 5 * time.Second, 500 * time.Millisecond
	// Agents are told again every warmEvery even if nothing has changed, and after warmRetry if
	// connections are missing or a path carries more than before.
	warmEvery, warmRetry = 30 * time.Second, 10 * time.Second
	// warmLifetime is how long agents keep connections that no session has used, if the controller
	// does not repeat its request.
	warmLifetime = agentapi.Duration(4 * warmEvery)
	// expectTimeout bounds the time to announce connections to one agent, and warmTimeout the time in
	// which one agent opens connections. warmAtOnce is the number of pairs whose rules are written at
	// once.
	expectTimeout, warmTimeout, warmAtOnce = 3 * time.Second, 10 * time.Second, 16
	// Of the whitelist only maxWarmEntries active entries are considered, and of each entry only
	// maxWarmPlaces places of clients, and of servers. The others' sessions are carried all the same.
	maxWarmEntries, maxWarmPlaces = 64, 8
	// maxWarmPairs bounds the pairs of all agents together.
	maxWarmPairs = 256
	// A pair that has carried a session stays a likely one for usedFor.
	usedFor = time.Hour
	// Connections are opened again if a path holds renewFactor times what it held when they were
	// opened. A path of unknown rate counts as one that holds unknownHolds bytes, which is about what
	// connections on such a path send at first.
	renewFactor, unknownHolds = 1.5, 64 << 10
	// maxWarmError bounds the description of an error that is kept for a pair.
	maxWarmError = 300
)

// pairID identifies two agents, by their data addresses of one family and their roles.
type pairID struct {
	client, server         *agent
	clientAddr, serverAddr netip.Addr
}

// warmPair is a pair of agents whose first session is likely.
type warmPair struct {
	pairEnds
	params agentapi.Params
	used   time.Time // when the pair last had a session; zero for never
	// guessed reports whether no client or no server is known for which the pair would be chosen.
	guessed bool
	paths   [2][]agentapi.Path // the network's knowledge about the paths, by the index of the sender's role
}

func (p *warmPair) id() pairID { return pairID{p.client, p.server, p.clientAddr, p.serverAddr} }

// warmState is the result of the last request for a pair.
type warmState struct {
	WarmInfo
	opened [2]float64 // what the paths held when the connections were opened, in bytes
}

// warming makes agents open connections to each other before the first session needs them, so that
// the session does not wait until connections are open and peers have proved their keys.
//
// A pair of agents is likely if it would be chosen for a host that the whitelist allows as a client
// and another one that it allows as a server, or if it has carried a session lately. A host that is
// not known yet may be near any agent. Each agent belongs to at most Config.WarmPeers pairs, those
// used last first. Only run uses the fields, except that the service's lock guards states.
type warming struct {
	*core
	selection *selection
	sessions  *sessions
	history   *history
	pairs     *pairs
	setups    *setups

	states map[pairID]*warmState
	held   map[string]bool // keys of the pairs whose rules are held
	told   map[*agent]bool // agents that may have a list with peers
	last   string          // description of the last request
	sent   time.Time       // when that was sent
}

// run keeps connections between the likely pairs until ctx ends. The agents then close those that no
// session has used.
func (s *warming) run(ctx context.Context) {
	s.warmUp.Run(ctx, warmDebounce, warmTick, func(ctx context.Context) { s.round(ctx, time.Now()) })
}

// round finds the likely pairs, and asks their agents if a pair is new, changed or incomplete, or the
// last request is old.
func (s *warming) round(ctx context.Context, now time.Time) {
	all := s.likely(now)
	s.holdRules(ctx, all)
	description, since := describeWarm(all), now.Sub(s.sent)
	due := description != s.last || since >= warmEvery && len(all) > 0
	if !due && since >= warmRetry {
		s.mu.Lock()
		due = slices.ContainsFunc(all, func(p *warmPair) bool { return !s.states[p.id()].complete() || s.states[p.id()].outgrown(p) })
		s.mu.Unlock()
	}
	if due {
		s.last, s.sent = description, now
		s.ask(ctx, all)
	}
}

// describeWarm describes everything about pairs whose change requires a new request.
func describeWarm(all []*warmPair) string {
	var b strings.Builder
	for _, p := range all {
		x, y := p.client.State(), p.server.State()
		fmt.Fprintln(&b, p.client.Name, x.Status.Instance, p.clientAddr, p.server.Name, y.Status.Instance, p.serverAddr, y.Status.DataPorts, p.params)
	}
	return b.String()
}

// complete reports whether the pair had all of its connections after the last request.
func (x *warmState) complete() bool { return x != nil && x.Error == "" }

// outgrown reports whether a path of the pair holds much more than when its connections were opened.
// Their initial windows are then too small.
func (x *warmState) outgrown(p *warmPair) bool {
	if x == nil {
		return false
	}
	for i, paths := range p.paths {
		if pathHolds(paths) > renewFactor*max(x.opened[i], unknownHolds) {
			return true
		}
	}
	return false
}

// pathHolds returns the number of bytes in flight on the largest of some paths at their known rates.
func pathHolds(paths []agentapi.Path) (most float64) {
	for _, p := range paths {
		most = max(most, float64(p.Rate)/8*time.Duration(p.RTT).Seconds())
	}
	return most
}

// likely returns the pairs of agents that get connections, those used last first.
func (s *warming) likely(now time.Time) []*warmPair {
	s.mu.Lock()
	cfg, whitelist := s.config, s.selection.whitelist
	used := s.used(now)
	s.mu.Unlock()
	if !cfg.Enabled || cfg.WarmPeers == 0 {
		return nil
	}
	found := map[pairID]*warmPair{}
	var active []*Entry
	for i := range whitelist {
		if e := &whitelist[i]; e.Active(now) && len(active) < maxWarmEntries {
			active = append(active, e)
		}
	}
	hosts := s.net.Hosts()
	chosen := map[[2]placeKind]*pairEnds{}
	for _, e := range active {
		clients, servers := s.places(e.Clients, hosts), s.places(e.Servers, hosts)
		for _, c := range clients {
			for _, sv := range servers {
				if c.addr.Is4() != sv.addr.Is4() || c.anchor != nil && sv.anchor != nil {
					continue
				}
				between := [2]placeKind{c.kind(), sv.kind()}
				if _, ok := chosen[between]; !ok || c.anchor != nil || sv.anchor != nil {
					chosen[between] = s.choose(c, sv)
				}
				s.add(found, chosen[between], e.Tuning.over(cfg.Tuning), c.guessed || sv.guessed)
			}
		}
	}
	for _, u := range used {
		if i := slices.IndexFunc(active, func(e *Entry) bool { return e.ID == u.entry }); i >= 0 {
			s.add(found, s.endsOfUse(&u), active[i].Tuning.over(cfg.Tuning), false)
		}
	}
	for id, p := range found {
		p.used = used[usedKey(id.client.Name, id.server.Name, id.clientAddr.Is4())].at
	}
	return bounded(slices.Collect(maps.Values(found)), cfg.WarmPeers)
}

// bounded returns those of the pairs with which no agent belongs to more than most pairs. The pairs
// that were used last come first, and those that are only guessed last.
func bounded(all []*warmPair, most int) (out []*warmPair) {
	slices.SortFunc(all, func(a, b *warmPair) int {
		return cmp.Or(b.used.Compare(a.used), order(a.guessed, b.guessed), cmp.Compare(a.client.Name, b.client.Name), cmp.Compare(a.server.Name, b.server.Name), a.clientAddr.Compare(b.clientAddr))
	})
	pairsOf := map[*agent]int{}
	for _, p := range all {
		if pairsOf[p.client] < most && pairsOf[p.server] < most && len(out) < maxWarmPairs {
			pairsOf[p.client]++
			pairsOf[p.server]++
			out = append(out, p)
		}
	}
	return out
}

// usedKey identifies a pair of agents, by their names, and an address family.
func usedKey(client, server string, is4 bool) string {
	return fmt.Sprintf("%s %s %t", client, server, is4)
}

// lastUse is the last session of a pair of agents.
type lastUse struct {
	clientAgent, serverAgent, entry string
	client                          netip.Addr // the session's client, for the address family
	at                              time.Time
}

// used returns the last session of each pair of agents that had one lately. The lock is held.
func (s *warming) used(now time.Time) map[string]lastUse {
	out := map[string]lastUse{}
	note := func(u lastUse) {
		key := usedKey(u.clientAgent, u.serverAgent, u.client.Is4())
		if u.at.After(out[key].at) {
			out[key] = u
		}
	}
	for _, ss := range s.sessions.byFlow {
		if ss.state == StateLive {
			note(lastUse{ss.ClientAgent, ss.ServerAgent, ss.Entry, ss.flow.client.Addr(), now})
		}
	}
	for i := len(s.history.records) - 1; i >= 0; i-- {
		r := &s.history.records[i]
		if r.Ended == nil || now.Sub(*r.Ended) > usedFor {
			break
		}
		if r.Setup.Total > 0 {
			note(lastUse{r.ClientAgent, r.ServerAgent, r.Entry, r.Client.Addr(), *r.Ended})
		}
	}
	return out
}

// add adds a pair, unless there is none, or it is among the found ones already: the entry that was
// added first decides about its parameters.
func (s *warming) add(found map[pairID]*warmPair, ends *pairEnds, tuning Tuning, guessed bool) {
	if ends == nil {
		return
	}
	ends.paths = max(tuning.Paths, 1)
	p := &warmPair{pairEnds: *ends, params: tuning.params(), guessed: guessed}
	if was := found[p.id()]; was != nil {
		was.guessed = was.guessed && guessed
		return
	}
	found[p.id()] = p
}

// hostPlace is the place of a host that the whitelist allows.
type hostPlace struct {
	endpoint
	addr netip.Addr
	// guessed reports whether no host is known there: the place is an agent's.
	guessed bool
}

// placeKind identifies the places between which a choice of agents makes no difference. Mobile hosts
// may have several borders.
type placeKind struct {
	at         openflow.DatapathID
	is4, moves bool
}

func (e *hostPlace) kind() placeKind {
	return placeKind{e.At.Switch, e.addr.Is4(), e.anchor != nil}
}

// places returns the places of hosts in prefixes: one host for each switch, that with the lowest
// address. Hosts that have not sent a packet yet are not known. Agents are put where end hosts are, so
// the places of agents stand for theirs, after those of known hosts.
func (s *warming) places(in []netip.Prefix, hosts []network.Host) []hostPlace {
	found := map[placeKind]hostPlace{}
	ours := s.selection.snapshot.Load().agents
	add := func(e hostPlace) {
		k := e.kind()
		was, ok := found[k]
		if !e.At.IsZero() && (!ok || was.guessed && !e.guessed || was.guessed == e.guessed && e.addr.Less(was.addr)) {
			found[k] = e
		}
	}
	addHost := func(addr netip.Addr, h network.Host) {
		e := hostPlace{endpoint: endpoint{Place: agents.PlaceOf(h)}, addr: addr}
		if a := s.anchorOf(addr); a != nil && len(a.Borders) > 0 {
			e.Place, e.anchor = agents.Place{At: a.Borders[0], MAC: a.MAC}, a
		}
		if !ours[addr] {
			add(e)
		}
	}
	for _, p := range in {
		if p.IsSingleIP() {
			h, known := s.net.HostByIP(p.Addr())
			addHost(p.Addr(), h)
			if known {
				continue
			}
		}
		for _, a := range s.agents.List() {
			for addr, place := range a.State().Places {
				if addr.Is4() == p.Addr().Is4() {
					add(hostPlace{endpoint{Place: place}, addr, true})
				}
			}
		}
		for _, h := range hosts {
			for _, addr := range h.IPs {
				if !p.IsSingleIP() && p.Contains(addr) {
					addHost(addr, h)
				}
			}
		}
	}
	out := slices.SortedFunc(maps.Values(found), func(a, b hostPlace) int {
		return cmp.Or(order(a.guessed, b.guessed), a.addr.Compare(b.addr))
	})
	return out[:min(len(out), maxWarmPlaces)]
}

// order compares two values: false comes before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// choose returns the agents that a session between two hosts would get if no other session ran, or
// nil. The loads of agents are left out of account, because pairs should not change with them.
func (s *warming) choose(client, server hostPlace) *pairEnds {
	s.mu.Lock()
	defer s.mu.Unlock()
	metric, top := s.config.metric(), s.net.Topology()
	list, of := s.agents.Candidates(client.addr, nil, s.setups.costTo(client.endpoint, top, metric), s.setups.costTo(server.endpoint, top, metric))
	for i := range list {
		list[i].Sessions, list[i].Throughput = 0, 0
	}
	limit := agents.Tolerance(metric, time.Duration(s.config.EqualLatency).Seconds())
	x, y, err := Choose(list, limit, s.config.Balance)
	if err != nil {
		return nil
	}
	return endsOf(of[x], of[y], client.addr)
}

// endsOfUse returns the agents of a session, or nil if they cannot carry another one.
func (s *warming) endsOfUse(u *lastUse) *pairEnds {
	a, b := s.agents.Get(u.clientAgent), s.agents.Get(u.serverAgent)
	if a == nil || b == nil {
		return nil
	}
	return endsOf(a, b, u.client)
}

// endsOf returns two agents with their addresses of a family, or nil if one of them can carry no
// session of that family now.
func endsOf(client, server *agent, family netip.Addr) *pairEnds {
	x, y := client.State(), server.State()
	if client == server || x.Unfit(family) != "" || y.Unfit(family) != "" || len(y.Status.DataPorts) == 0 {
		return nil
	}
	a, _ := x.Addr(family)
	b, _ := y.Addr(family)
	return &pairEnds{client: client, server: server, clientAddr: a, serverAddr: b}
}

// holdRules keeps the rules between the agents of the likely pairs, and removes those of pairs that
// are no longer likely. It also finds out what is known about the pairs' paths.
func (s *warming) holdRules(ctx context.Context, all []*warmPair) {
	wanted := map[string]bool{}
	tasks.Each(all, warmAtOnce, func(p *warmPair) {
		ctx, cancel := context.WithTimeout(ctx, rerouteTimeout)
		defer cancel()
		if err := s.pairs.hold(ctx, p.pairEnds); err != nil {
			s.warnLimit.Warn(s.log, "agents whose first session is likely have no rules for their path", "client_agent", p.client.Name, "server_agent", p.server.Name, "error", err)
		}
		for i, r := range roles {
			p.paths[i] = s.pairs.knownPaths(p.pairEnds, r)
		}
	})
	for _, p := range all {
		wanted[p.key()] = true
	}
	for key := range s.held {
		if !wanted[key] {
			s.pairs.drop(ctx, key)
		}
	}
	s.held = wanted
}

// ask tells the agents of all pairs what to expect and what to open, with a new key for each pair, and
// stores the results.
func (s *warming) ask(ctx context.Context, all []*warmPair) {
	expected, opened := map[*agent][]agentapi.WarmPeer{}, map[*agent][]agentapi.WarmPeer{}
	of := map[*agent][]*warmPair{} // in the order of opened
	for a := range s.told {
		expected[a], opened[a] = nil, nil
	}
	renew := map[*warmPair]bool{}
	s.mu.Lock()
	for _, p := range all {
		renew[p] = s.states[p.id()].outgrown(p)
	}
	s.mu.Unlock()
	for _, p := range all {
		one := agentapi.WarmPeer{ID: agentapi.NewSessionID(), Key: agentapi.NewKey(), Params: p.params, Renew: renew[p]}
		there, here := one, one
		there.Peer.Addr, there.Paths = p.clientAddr, p.paths[1]
		ports := p.server.State().Status.DataPorts
		here.Peer = agentapi.Peer{Addr: p.serverAddr, DataPorts: ports[:min(len(ports), p.pairEnds.paths, agentapi.MaxWarmPaths)]}
		here.Paths = p.paths[0]
		expected[p.server], opened[p.client] = append(expected[p.server], there), append(opened[p.client], here)
		of[p.client] = append(of[p.client], p)
	}
	var mu sync.Mutex
	failed := map[*agent]error{}
	s.each(ctx, expected, expectTimeout, func(ctx context.Context, a *agent, in agentapi.WarmPeers) {
		if err := a.Client.ExpectPeers(ctx, in); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed[a] = err
		}
	})
	results := map[*warmPair]agentapi.WarmStatus{}
	s.each(ctx, opened, warmTimeout, func(ctx context.Context, a *agent, in agentapi.WarmPeers) {
		list, err := a.Client.WarmPeers(ctx, in)
		if err == nil && len(list) != len(of[a]) {
			err = fmt.Errorf("agent %s: %d results for %d peers", a.Name, len(list), len(of[a]))
		}
		mu.Lock()
		defer mu.Unlock()
		for i, p := range of[a] {
			switch {
			case failed[p.server] != nil:
				results[p] = agentapi.WarmStatus{Error: failed[p.server].Error()}
			case err != nil:
				results[p] = agentapi.WarmStatus{Error: err.Error()}
			default:
				results[p] = agentapi.WarmStatus{Ready: list[i].Ready, Opened: list[i].Opened, Error: clip(list[i].Error)}
			}
		}
	})
	s.told = map[*agent]bool{}
	for _, p := range all {
		s.told[p.client], s.told[p.server] = true, true
	}
	s.store(all, results)
}

// clip shortens an agent's description of an error to maxWarmError bytes.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxWarmError)], "")
}

// each passes the list of each agent that is up to f, with a deadline, several agents at once.
func (s *warming) each(ctx context.Context, lists map[*agent][]agentapi.WarmPeer, timeout time.Duration, f func(context.Context, *agent, agentapi.WarmPeers)) {
	eachUp(maps.Keys(lists), func(a *agent) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		f(ctx, a, agentapi.WarmPeers{Peers: append([]agentapi.WarmPeer{}, lists[a]...), Lifetime: warmLifetime})
	})
}

// store replaces the states of the pairs by the results of a request, and logs what has changed.
func (s *warming) store(all []*warmPair, results map[*warmPair]agentapi.WarmStatus) {
	now := time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.states
	s.states = map[pairID]*warmState{}
	for _, p := range all {
		was := before[p.id()]
		r, ok := results[p]
		if !ok {
			r.Error = "the agent is silent"
		}
		x := &warmState{WarmInfo: WarmInfo{
			ClientAgent: p.client.Name, ServerAgent: p.server.Name, ClientAddress: p.clientAddr.String(), ServerAddress: p.serverAddr.String(),
			Connections: r.Ready, Since: now, Error: r.Error,
		}}
		holds := [2]float64{pathHolds(p.paths[0]), pathHolds(p.paths[1])}
		switch {
		case was == nil || r.Opened > 0:
			x.opened = holds
		default:
			x.opened = was.opened
		}
		if was != nil && was.Connections == r.Ready && was.Error == r.Error && r.Opened == 0 {
			x.Since = was.Since
		}
		s.states[p.id()] = x
		switch about := []any{"client_agent", p.client.Name, "server_agent", p.server.Name}; {
		case r.Error == "" && (was == nil || was.Error != ""):
			s.log.Info("agents have connections to each other before their first session", append(about, "connections", r.Ready)...)
		case r.Error != "" && (was == nil || was.Error == ""):
			s.log.Warn("agents could not open connections to each other before their first session, which has to wait for them", append(about, "error", r.Error)...)
		}
	}
}

// WarmInfo describes the connections of a pair of agents that were opened before a session needs
// them, as the API shows it.
type WarmInfo struct {
	ClientAgent   string    `json:"client_agent" doc:"The agent near the client, which opens the connections"`
	ServerAgent   string    `json:"server_agent" doc:"The agent near the server, which accepts them"`
	ClientAddress string    `json:"client_address" doc:"Data address of the agent near the client"`
	ServerAddress string    `json:"server_address" doc:"Data address of the agent near the server"`
	Connections   int       `json:"connections" doc:"Idle connections from the first agent to the second at the last request"`
	Since         time.Time `json:"since" doc:"When connections were opened last, or since when they are missing"`
	Error         string    `json:"error,omitempty" doc:"Why connections are missing; the first session then waits until they are open"`
}

// infos returns the states of all pairs, sorted by agents and address.
func (s *warming) infos() []WarmInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]WarmInfo, 0, len(s.states))
	for _, x := range s.states {
		out = append(out, x.WarmInfo)
	}
	slices.SortFunc(out, func(a, b WarmInfo) int {
		return cmp.Or(cmp.Compare(a.ClientAgent, b.ClientAgent), cmp.Compare(a.ServerAgent, b.ServerAgent), cmp.Compare(a.ClientAddress, b.ClientAddress))
	})
	return out
}

// count passes the number of pairs in each state to is.
func (s *warming) count(is func(float64, ...string)) {
	open, failed := 0, 0
	for _, x := range s.infos() {
		if x.Error == "" {
			open++
		} else {
			failed++
		}
	}
	is(float64(open), "open")
	is(float64(failed), "failed")
}
