package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// flow is a TCP connection as its client opened it.
type flow struct{ client, server netip.AddrPort }

func (f flow) String() string { return fmt.Sprintf("%v to %v", f.client, f.server) }

// sessionContext is what the agents keep of a session for a controller that
// starts anew.
type sessionContext struct {
	Layout Layout `json:"layout"`
	// ClientAt and ServerAt are where the interception switches see the ends.
	ClientAt    network.PortRef `json:"client_at"`
	ServerAt    network.PortRef `json:"server_at"`
	ClientAgent string          `json:"client"`
	ServerAgent string          `json:"server"`
	Entry       string          `json:"entry"`
	Tuning      Tuning          `json:"tuning"`
	Started     time.Time       `json:"started"`
}

// maxContext is what an agent keeps for a session.
const maxContext = 16 << 10

// readContext reads what an agent has kept.
func readContext(b []byte) (c sessionContext, ok bool) {
	return c, len(b) <= maxContext && json.Unmarshal(b, &c) == nil
}

// session is one connection from its first packet until its rules are gone.
// What stands before its context is fixed when its set-up is over; the rest belongs to the
// service's lock.
type session struct {
	id   agentapi.SessionID
	flow flow
	isn  uint32 // the client's initial sequence number; 0 if it is not known
	sessionContext

	state      State
	client     *agent
	server     *agent
	pair       string
	agentPaths [][]string
	// shares are the treatments that it has between its agents, and between the ports by
	// which it has them there. marks are the DSCPs that its agents were told, by role, and
	// epoch that of the treatments of all that.
	shares  []shared
	between []network.Carried
	marks   [2]agentapi.Marks
	epoch   uint64
	steps   Steps
	// halfOpen says that the client has not come to its agent yet.
	halfOpen bool
	samples  sampler
	// last are the agents' latest counters, ended their final records.
	last  map[agentapi.Role]agentapi.Counters
	ended map[agentapi.Role]agentapi.SessionRecord
	// bothEnded is closed when both agents have reported the end.
	bothEnded chan struct{}
	// over is closed when nothing of the session is left in the network; awaited says
	// that a first packet of the next connection with its ports waits for that.
	over    chan struct{}
	awaited bool
	// anchored are the sides whose end host moves and has been seen to be led, since
	// the start.
	anchored map[agentapi.Role]bool
	how      string
	stored   bool // the store has it as a live one
	// changing serialises changes of the session's rules after its set-up.
	changing sync.Mutex
}

// newSession returns one in no state.
func newSession(id agentapi.SessionID, about sessionContext) *session {
	return &session{
		id: id, flow: flow{about.Layout.Client, about.Layout.Server}, sessionContext: about,
		last: map[agentapi.Role]agentapi.Counters{}, ended: map[agentapi.Role]agentapi.SessionRecord{}, anchored: map[agentapi.Role]bool{},
		bothEnded: make(chan struct{}), over: make(chan struct{}),
	}
}

// ofRole is what belongs to a role.
func ofRole[T any](r agentapi.Role, client, server T) T {
	if r == agentapi.RoleClient {
		return client
	}
	return server
}

func other(r agentapi.Role) agentapi.Role { return ofRole(r, agentapi.RoleServer, agentapi.RoleClient) }

func (s *session) agent(r agentapi.Role) *agent { return ofRole(r, s.client, s.server) }

// at is where the interception switch of a side sees its end host.
func (s *session) at(r agentapi.Role) *network.PortRef { return ofRole(r, &s.ClientAt, &s.ServerAt) }

// carriedBy says whether one of the session's agents is a, and the other is with; nil: any.
func (s *session) carriedBy(a, with *agent) bool {
	x, y := s.client, s.server
	return x == a && (with == nil || y == with) || y == a && (with == nil || x == with)
}

// agents are both, in the order of their roles.
func (s *session) agents() []*agent { return []*agent{s.client, s.server} }

// carried says that the client was connected and that its connection has been closed
// in order, so that it will not send its first packet again. The service's lock is held.
func (s *session) carried() bool {
	return s.isn != 0 && s.ended[agentapi.RoleClient].Reason == agentapi.ReasonClosed
}

// keys under which the rules of the two sides stand in the ledger.
func (s *session) key(r agentapi.Role) string { return fmt.Sprintf("session/%v/%s", s.id, r) }

var bothRole = [2]agentapi.Role{agentapi.RoleClient, agentapi.RoleServer}

// ends are the end host of a side, and that of the other.
func (l *Layout) ends(r agentapi.Role) (end, far netip.AddrPort) {
	return ofRole(r, l.Client, l.Server), ofRole(r, l.Server, l.Client)
}

// Steps are how long the parts of a set-up took.
type Steps struct {
	Queue   agentapi.Duration `json:"queue" doc:"Waiting for its turn"`
	Select  agentapi.Duration `json:"select" doc:"Finding the ends, choosing agents and paths"`
	Prepare agentapi.Duration `json:"prepare" doc:"Both agents' answers"`
	Rules   agentapi.Duration `json:"rules" doc:"Rules of the server's side and between the agents, until the switches' barriers"`
	Commit  agentapi.Duration `json:"commit" doc:"The server's answer to its agent"`
	Client  agentapi.Duration `json:"client" doc:"Rules of the client's side"`
	Total   agentapi.Duration `json:"total" doc:"From the client's first packet until its release"`
}

// stopwatch measures consecutive steps.
type stopwatch struct{ start, last time.Time }

func (w *stopwatch) lap() agentapi.Duration {
	before := w.last
	w.last = time.Now()
	return agentapi.Duration(w.last.Sub(before))
}

func (w *stopwatch) total() agentapi.Duration { return agentapi.Duration(w.last.Sub(w.start)) }
