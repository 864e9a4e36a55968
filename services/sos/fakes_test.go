package sos

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// fakeNet is a network and a ledger that can be told to wait and to refuse, and that records what
// happens.
type fakeNet struct {
	*servicetest.Network
	*servicetest.Ledger
	mu     sync.Mutex
	moving map[netip.Addr]network.Anchor
	// oneTable means that no switch has several tables.
	oneTable bool
	log      []string // everything that has happened; shared with the agents
	refuse   func(key string) error
	wait     func(ctx context.Context, key string) // is called before anything is applied
}

func newFakeNet(top *network.Topology, hosts ...network.Host) *fakeNet {
	n := &fakeNet{Network: servicetest.NewNetwork(top, hosts...), Ledger: servicetest.NewLedger(), moving: map[netip.Addr]network.Anchor{}}
	n.OnApply, n.OnRemove = n.apply, func(key string) error { n.note("remove " + keyKind(key)); return nil }
	return n
}

func (n *fakeNet) HasTables(openflow.DatapathID) bool { return !n.oneTable }

func (n *fakeNet) Anchored(a netip.Addr) (network.Anchor, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.moving[a]
	return x, ok
}

// apply returns the result of applying a program.
func (n *fakeNet) apply(ctx context.Context, key string) error {
	n.mu.Lock()
	wait, refuse := n.wait, n.refuse
	n.mu.Unlock()
	if wait != nil {
		wait(ctx, key)
	}
	if refuse != nil {
		if err := refuse(key); err != nil {
			return err
		}
	}
	n.note("apply " + keyKind(key))
	return nil
}

func (n *fakeNet) note(what string) { n.mu.Lock(); defer n.mu.Unlock(); n.log = append(n.log, what) }

// events returns what has happened since the last call, without punt rules.
func (n *fakeNet) events() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(n.log), func(s string) bool { return s == "apply punt" || s == "apply guard" })
	n.log = nil
	return out
}

// kept returns the keys that have rules, without punt rules.
func (n *fakeNet) kept() []string {
	return slices.DeleteFunc(n.Keys(), func(key string) bool { return keyKind(key) == "punt" || keyKind(key) == "guard" })
}

func (n *fakeNet) snapshot() map[string][]network.Rule { return rulesOf(n.Programs()) }

func rulesOf(programs map[string]network.Program) map[string][]network.Rule {
	out := map[string][]network.Rule{}
	for key, p := range programs {
		out[key] = p.Rules
	}
	return out
}

// keyKind shortens a key: punt, pair, client, server.
func keyKind(key string) string {
	switch {
	case key[:4] == "punt", key[:4] == "pair":
		return key[:4]
	case key[:5] == "guard":
		return key[:5]
	default:
		return key[len(key)-6:]
	}
}

// fakeAgent serves the agents' control API over HTTP and behaves as the test tells it.
type fakeAgent struct {
	name   string
	server *httptest.Server
	net    *fakeNet

	once     sync.Once
	dead     chan struct{}
	mu       sync.Mutex
	instance string
	limit    int
	draining bool
	seq      uint64
	sessions map[agentapi.SessionID]agentapi.Session
	prepare  func(agentapi.PrepareRequest) error
	commit   func() error
	streams  map[chan agentapi.Event]bool
	// mute is closed when nothing from the agent arrives any more although it runs, and off when
	// its machine does not answer either.
	mute    chan struct{}
	off     chan struct{}
	gates   map[string]chan struct{} // by the path whose requests wait
	waits   chan struct{}            // receives a value when a request waits
	past    []agentapi.SessionRecord
	phase   agentapi.Phase // phase of new sessions
	peers   []control.PeerStatus
	paths   []agentapi.PathStatus // reported before the controller requests them
	noPaths atomic.Bool           // whether the agent fails to list its paths
	// limits holds the controller's latest limits of the agent's paths.
	limits []agentapi.Limit
	// expected and warm are the latest lists of peers, and warmResult is the result for a peer.
	expected, warm *agentapi.WarmPeers
	warmResult     func(agentapi.WarmPeer) agentapi.WarmStatus
}

func newFakeAgent(t *testing.T, n *fakeNet, name string) *fakeAgent {
	a := &fakeAgent{
		name: name, net: n, instance: "first", limit: 100, dead: make(chan struct{}),
		sessions: map[agentapi.SessionID]agentapi.Session{}, streams: map[chan agentapi.Event]bool{},
		mute: make(chan struct{}), off: make(chan struct{}), waits: make(chan struct{}, 1), phase: agentapi.PhaseRunning,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions", a.postSession)
	mux.HandleFunc("GET /v1/sessions", a.getSessions)
	mux.HandleFunc("POST /v1/sessions/{id}/commit", a.postCommit)
	mux.HandleFunc("DELETE /v1/sessions/{id}", a.deleteSession)
	mux.HandleFunc("PUT /v1/sessions/{id}/marks", a.putMarks)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, a.status()) })
	mux.HandleFunc("GET /v1/paths", func(w http.ResponseWriter, _ *http.Request) {
		if a.noPaths.Load() {
			http.Error(w, "no paths", http.StatusInternalServerError)
			return
		}
		reply(w, a.paths)
	})
	mux.HandleFunc("PUT /v1/paths/limits", a.putLimits)
	mux.HandleFunc("PUT /v1/peers/expected", a.putExpected)
	mux.HandleFunc("PUT /v1/peers/warm", a.putWarm)
	mux.HandleFunc("POST /v1/drain", a.postDrain)
	mux.HandleFunc("GET /v1/events", a.getEvents)
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-a.mute:
			select {
			case <-r.Context().Done():
			case <-a.dead:
			}
		default:
			a.await(r)
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(a.kill)
	return a
}

// gate makes requests for a path wait until open is called.
func (a *fakeAgent) gate(path string) (open func()) {
	c := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gates = map[string]chan struct{}{path: c}
	return sync.OnceFunc(func() { close(c) })
}

// await waits at the gate of a request's path, if there is one.
func (a *fakeAgent) await(r *http.Request) {
	a.mu.Lock()
	c := a.gates[r.URL.Path]
	a.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case a.waits <- struct{}{}:
	default:
	}
	select {
	case <-c:
	case <-r.Context().Done():
	case <-a.dead:
	}
}

// kill ends the agent at once, as the loss of its process does.
func (a *fakeAgent) kill() {
	a.once.Do(func() {
		_ = a.server.Listener.Close()
		a.mu.Lock()
		clear(a.sessions)
		a.mu.Unlock()
		close(a.dead)
		a.server.CloseClientConnections()
		a.server.Close()
	})
}

func reply(w http.ResponseWriter, v any) {
	var p *control.Problem
	if err, ok := v.(error); ok && errors.As(err, &p) {
		w.WriteHeader(http.StatusConflict)
		v = p
	}
	_ = json.NewEncoder(w).Encode(v)
}

func (a *fakeAgent) load() control.Load {
	return control.Load{Sessions: len(a.sessions), MaxSessions: a.limit, Draining: a.draining}
}

func (a *fakeAgent) postDrain(w http.ResponseWriter, r *http.Request) {
	var req control.DrainRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	a.mu.Lock()
	a.draining = req.On
	a.mu.Unlock()
	reply(w, a.status())
}

func (a *fakeAgent) status() control.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return control.Status{
		Load: a.load(), Instance: a.instance, DataPorts: []uint16{7001, 7002},
		SessionPorts: control.PortRange{First: 5000, Last: 6999}, Peers: a.peers,
	}
}

func (a *fakeAgent) postSession(w http.ResponseWriter, r *http.Request) {
	var req agentapi.PrepareRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	a.net.note("prepare " + string(req.Role))
	a.mu.Lock()
	hook := a.prepare
	a.mu.Unlock()
	if req.Role == agentapi.RoleClient && len(req.Peer.DataPorts) == 0 {
		reply(w, &control.Problem{Code: control.CodeBadRequest, Title: "wrong request", Field: "peer.data_ports"})
		return
	}
	if hook != nil {
		if err := hook(req); err != nil {
			reply(w, err)
			return
		}
	}
	port := uint16(5001)
	if req.Role == agentapi.RoleServer {
		port = 6001
	}
	answer := agentapi.PrepareReply{Port: port, OnLink: true, PeerOnLink: true, DataPorts: []uint16{7001, 7002}}
	a.mu.Lock()
	a.sessions[req.ID] = agentapi.Session{
		ID: req.ID, Role: req.Role, Phase: a.phase, Client: req.Client, Server: req.Server,
		Port: port, Reply: answer, Context: req.Context, Marks: req.Marks,
	}
	a.mu.Unlock()
	reply(w, answer)
}

func (a *fakeAgent) putLimits(w http.ResponseWriter, r *http.Request) {
	var in agentapi.Limits
	_ = json.NewDecoder(r.Body).Decode(&in)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = in.Limits
	reply(w, a.paths)
}

func (a *fakeAgent) putExpected(w http.ResponseWriter, r *http.Request) {
	var in agentapi.WarmPeers
	_ = json.NewDecoder(r.Body).Decode(&in)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expected = &in
	reply(w, struct{}{})
}

func (a *fakeAgent) putWarm(w http.ResponseWriter, r *http.Request) {
	var in agentapi.WarmPeers
	_ = json.NewDecoder(r.Body).Decode(&in)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warm = &in
	out := []agentapi.WarmStatus{}
	for _, p := range in.Peers {
		if a.warmResult != nil {
			out = append(out, a.warmResult(p))
		} else {
			out = append(out, agentapi.WarmStatus{Peer: p.Peer.Addr, Ready: 2, Opened: 2})
		}
	}
	reply(w, out)
}

// lists returns the agent's latest lists of peers: those that it expects, and those to which it opens
// connections.
func (a *fakeAgent) lists() (expected, warm []agentapi.WarmPeer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.expected != nil {
		expected = a.expected.Peers
	}
	if a.warm != nil {
		warm = a.warm.Peers
	}
	return expected, warm
}

// limitOf returns the controller's limit of a path, and reports whether there is one.
func (a *fakeAgent) limitOf(peer netip.AddrPort) (l agentapi.Limit, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.limits, func(l agentapi.Limit) bool { return l.Peer == peer.Addr() && l.Port == peer.Port() })
	if i < 0 {
		return l, false
	}
	return a.limits[i], true
}

func (a *fakeAgent) getSessions(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reply(w, slices.Collect(maps.Values(a.sessions)))
}

func (a *fakeAgent) postCommit(w http.ResponseWriter, r *http.Request) {
	id, _ := agentapi.ParseSessionID(r.PathValue("id"))
	a.mu.Lock()
	hook, s := a.commit, a.sessions[id]
	a.mu.Unlock()
	a.net.note("commit " + string(s.Role))
	if hook != nil {
		if err := hook(); err != nil {
			reply(w, err)
			return
		}
	}
	reply(w, struct{}{})
}

func (a *fakeAgent) deleteSession(w http.ResponseWriter, r *http.Request) {
	id, _ := agentapi.ParseSessionID(r.PathValue("id"))
	if !a.finish(id, agentapi.ReasonAborted) {
		reply(w, &control.Problem{Code: control.CodeNotFound, Title: "no such session"})
		return
	}
	a.net.note("abort")
	reply(w, struct{}{})
}

// finish ends a session and reports it.
func (a *fakeAgent) finish(id agentapi.SessionID, why agentapi.Reason) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.sessions[id]
	if !ok {
		return false
	}
	delete(a.sessions, id)
	a.seq++
	s.Counters.BytesDown = 1000
	over := agentapi.SessionRecord{Reason: why, Ended: time.Now(), Session: s}
	a.past = append(a.past, over)
	e := agentapi.Event{Instance: a.instance, Status: a.load(), Seq: a.seq, Ended: []agentapi.SessionRecord{over}}
	for c := range a.streams {
		c <- e
	}
	return true
}

func (a *fakeAgent) only(t *testing.T) agentapi.SessionID {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.sessions {
		return id
	}
	t.Fatalf("agent %s has no session", a.name)
	return agentapi.SessionID{}
}

func (a *fakeAgent) ids() []agentapi.SessionID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.sessions))
}

func (a *fakeAgent) count() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.sessions) }

func (a *fakeAgent) getEvents(w http.ResponseWriter, r *http.Request) {
	c := make(chan agentapi.Event, 1000)
	a.mu.Lock()
	a.streams[c] = true
	first := agentapi.Event{Instance: a.instance, Status: a.load(), Seq: a.seq, Ended: slices.Clone(a.past)}
	a.mu.Unlock()
	defer func() { a.mu.Lock(); defer a.mu.Unlock(); delete(a.streams, c) }()
	beat := time.NewTicker(500 * time.Millisecond)
	defer beat.Stop()
	for e, seq := first, first.Seq; ; {
		if json.NewEncoder(w).Encode(e) != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-a.dead:
			return
		case <-a.mute:
			select {
			case <-r.Context().Done():
			case <-a.dead:
			}
			return
		case e = <-c:
			seq = e.Seq
		case <-beat.C:
			a.mu.Lock()
			e = agentapi.Event{Instance: a.instance, Status: a.load(), Seq: seq}
			a.mu.Unlock()
		}
	}
}

// fakeHeld is a held packet.
type fakeHeld struct {
	net     *fakeNet
	fate    chan string
	actions []openflow.Action // actions by which it was released
}

func (h *fakeHeld) Output(a []openflow.Action) error {
	h.net.note("release")
	h.actions = a
	h.fate <- "released"
	return nil
}
func (h *fakeHeld) Drop()          { h.fate <- "dropped" }
func (h *fakeHeld) Forward() error { h.net.note("forward"); h.fate <- "forwarded"; return nil }

// fakePunted is a packet that a switch has sent to the controller.
type fakePunted struct {
	held    *fakeHeld
	taken   bool              // by Hold
	actions []openflow.Action // actions by which it was sent on
}

func (p *fakePunted) Hold(time.Duration) (Held, error) { p.taken = true; return p.held, nil }
func (p *fakePunted) Output(a []openflow.Action) error { p.actions = a; return nil }
