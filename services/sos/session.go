package sos

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// flow identifies a TCP connection by its ends, as its client opened it.
type flow struct{ client, server netip.AddrPort }

func (f flow) String() string { return fmt.Sprintf("%v to %v", f.client, f.server) }

// sessionContext is the description of a session that its agents keep for a controller that has
// restarted.
type sessionContext struct {
	Layout Layout `json:"layout"`
	// ClientAt and ServerAt are the ports at which the interception switches see the ends.
	ClientAt    network.PortRef `json:"client_at"`
	ServerAt    network.PortRef `json:"server_at"`
	ClientAgent string          `json:"client"`
	ServerAgent string          `json:"server"`
	Entry       string          `json:"entry"`
	Tuning      Tuning          `json:"tuning"`
	Started     time.Time       `json:"started"`
}

// maxContext bounds the size of a sessionContext that an agent keeps, in bytes.
const maxContext = 16 << 10

// readContext decodes a context that an agent has kept, and reports whether it is valid.
func readContext(b []byte) (c sessionContext, ok bool) {
	return c, len(b) <= maxContext && json.Unmarshal(b, &c) == nil
}

// session is one connection from its first packet until its rules are gone. Fields up to
// sessionContext do not change after the set-up; the service's lock guards the others.
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
	// treatments lists the treatments of the session's packets between its agents, and
	// carriedBetween the ports at which they apply. marks holds the DSCPs that its agents were told
	// to use, by role. epoch is the version of the promised treatments on which these three are
	// based.
	treatments     []pairTreatment
	carriedBetween []network.Carried
	marks          [2]agentapi.Marks
	epoch          uint64
	steps          Steps
	// halfOpen reports whether the client has not reached its agent yet.
	halfOpen bool
	samples  sampler
	// last holds the agents' latest counters, and ended their final records.
	last  map[agentapi.Role]agentapi.Counters
	ended map[agentapi.Role]agentapi.SessionRecord
	// bothEnded is closed when both agents have reported the end.
	bothEnded chan struct{}
	// over is closed when the session's rules are gone from the network. nextWaiting reports
	// whether the first packet of the next connection with the same ports is held until then.
	over        chan struct{}
	nextWaiting bool
	// anchored holds the sides whose end host is mobile and has been seen at its agent's border
	// since the start.
	anchored map[agentapi.Role]bool
	how      string
	inStore  bool // whether the store holds the session as a live one
	// changing serialises changes of the session's rules after its set-up.
	changing sync.Mutex
}

// newSession returns a session without a state.
func newSession(id agentapi.SessionID, about sessionContext) *session {
	return &session{
		id: id, flow: flow{about.Layout.Client, about.Layout.Server}, sessionContext: about,
		last: map[agentapi.Role]agentapi.Counters{}, ended: map[agentapi.Role]agentapi.SessionRecord{}, anchored: map[agentapi.Role]bool{},
		bothEnded: make(chan struct{}), over: make(chan struct{}),
	}
}

func (s *session) agent(r agentapi.Role) *agent { return ofRole(r, s.client, s.server) }

// at returns the port at which the interception switch of a side sees its end host.
func (s *session) at(r agentapi.Role) *network.PortRef { return ofRole(r, &s.ClientAt, &s.ServerAt) }

// carriedBy reports whether a is one of the session's agents and with is the other. A nil with
// stands for any agent.
func (s *session) carriedBy(a, with *agent) bool {
	x, y := s.client, s.server
	return x == a && (with == nil || y == with) || y == a && (with == nil || x == with)
}

// agents returns both agents in the order of roles.
func (s *session) agents() []*agent { return []*agent{s.client, s.server} }

// clientClosed reports whether the client was connected and its connection was closed in order.
// Such a client does not repeat its first packet. The service's lock is held.
func (s *session) clientClosed() bool {
	return s.isn != 0 && s.ended[agentapi.RoleClient].Reason == agentapi.ReasonClosed
}

// key returns the key of a side's rules in the ledger.
func (s *session) key(r agentapi.Role) string { return fmt.Sprintf("session/%v/%s", s.id, r) }

// Steps holds the duration of each step of a set-up.
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

// offer is the first packet of a connection as its interception switch saw it.
type offer struct {
	flow           flow
	at             network.PortRef
	ethSrc, ethDst openflow.MAC
	vlan           uint16
	isn            uint32 // the client's initial sequence number
	dscp           uint8
	anchor         *network.Anchor // set if the client is mobile
}

// client returns the end that has sent the packet.
func (o *offer) client() endpoint {
	e := endpoint{Place: agents.Place{At: o.at, MAC: o.ethSrc, VLAN: o.vlan}, anchor: o.anchor}
	if o.anchor != nil {
		e.MAC = o.anchor.MAC
	}
	return e
}

// endpoint is an end host, or the router that leads to it.
type endpoint struct {
	agents.Place
	// routed reports whether a router stands between the two ends.
	routed bool
	// anchor is set if the end host is mobile. Its Place is then a border.
	anchor *network.Anchor
}

// assignAgents sets the session's agents and counts the session as theirs. The lock is
// held.
func (ss *session) assignAgents(client, server *agent) {
	ss.client, ss.server, ss.ClientAgent, ss.ServerAgent = client, server, client.Name, server.Name
	client.Take()
	server.Take()
}

// releaseAgents removes the session from its agents' counts. The lock is held.
func (ss *session) releaseAgents() {
	if ss.client != nil {
		ss.client.Release()
		ss.server.Release()
	}
}

// State is the state of a session.
type State string

// The states, in order.
const (
	StateSetup     State = "setup"     // the client's first packet is being held
	StateLive      State = "live"      // rules are in place, the agents carry the connection
	StateResetting State = "resetting" // an agent was lost; its end host is being told
	StateEnding    State = "ending"    // the agents are done; rules are being removed
	StateEnded     State = "ended"
)

// transition is a change of a session's state, and its cause.
type transition struct {
	from, to State // empty where the session begins
	when     string
}

// transitions lists all transitions that exist; docs/topics/sos.md prints them.
var transitions = []transition{
	{"", StateSetup, "a whitelisted connection's first packet is held, or both agents know the session after a restart of the controller"},
	{"", StateResetting, "after a restart of the controller one agent knows it alone"},
	{StateSetup, StateLive, "the switches have its rules and both agents are ready"},
	{StateSetup, StateEnded, "its set-up failed; the connection goes directly"},
	{StateLive, StateEnding, "both agents are done, and their end hosts know it"},
	{StateLive, StateResetting, "an agent is lost, or ended without its end host's knowledge"},
	{StateEnding, StateEnded, "its last segments are acknowledged, and its rules gone"},
	{StateResetting, StateEnded, "the end hosts are told, or were waited for long enough, and its rules gone"},
}

// reportInvalidTransition reports a transition that does not exist, which is a bug in this
// package.
var reportInvalidTransition = func(err error) { slog.Error("a fault of SOS", "error", err) }

// enter changes the session's state. It refuses a state that cannot follow; the session
// then keeps its state. The service's lock is held, or the session is not shared yet.
func (ss *session) enter(to State) {
	for _, t := range transitions {
		if t.from == ss.state && t.to == to {
			ss.state = to
			return
		}
	}
	reportInvalidTransition(fmt.Errorf("session %v of %v cannot go from %q to %q", ss.id, ss.flow, ss.state, to))
}
