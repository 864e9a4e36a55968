package agentapi

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Load is what an agent reports each second.
type Load struct {
	Sessions         int     `json:"sessions"`
	MaxSessions      int     `json:"max_sessions"`
	Draining         bool    `json:"draining"`
	BitsPerSecondIn  float64 `json:"bits_per_second_in"`  // from end hosts
	BitsPerSecondOut float64 `json:"bits_per_second_out"` // to end hosts
	CPU              float64 `json:"cpu"`                 // cores in use by the agent, 1.0 is one core
	MemoryBytes      uint64  `json:"memory_bytes"`        // resident memory of the process
	BufferedBytes    uint64  `json:"buffered_bytes"`      // payload held in pipes
}

// Status is the load together with what does not change while the agent runs.
type Status struct {
	Load
	// Instance differs after each start of the agent.
	Instance string     `json:"instance"`
	Started  time.Time  `json:"started"`
	Version  string     `json:"version"`
	Addr     netip.Addr `json:"addr"`
	// Addrs are its data addresses, at most one of each family; Addr is the first.
	Addrs     []netip.Addr `json:"addrs"`
	DataPorts []uint16     `json:"data_ports"`
	// SessionPorts are the agent's ports towards end hosts: it uses them for
	// nothing but sessions. The zero range is that of an agent that does not say.
	SessionPorts       PortRange `json:"session_ports"`
	MAC                string    `json:"mac,omitempty"`
	CongestionControls []string  `json:"congestion_controls"`
	Transports         []string  `json:"transports"`
	// Peers are the agents with which it carries sessions.
	Peers []PeerStatus `json:"peers,omitempty"`
	// Warnings say what keeps the agent below its best, and the remedy.
	Warnings []string `json:"warnings,omitempty"`
}

// PeerStatus is what an agent knows of another.
type PeerStatus struct {
	Addr netip.Addr `json:"addr"`
	// Silence is how long nothing has come from it on any session's connections,
	// on which it speaks twice a second.
	Silence Duration `json:"silence"`
}

// PortRange is a range of TCP ports, both ends included.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Phase is where a live session stands.
type Phase string

// The phases, in order.
const (
	PhasePrepared  Phase = "prepared"  // ports are bound
	PhaseCommitted Phase = "committed" // server dialled, or waiting for the client
	PhaseRunning   Phase = "running"   // the end host is connected and the peer has proved itself
	PhaseClosing   Phase = "closing"   // the end host is done; connections to the peer are being given back
)

// Counters are the figures of one session. Up is client to server.
type Counters struct {
	BytesUp       uint64 `json:"bytes_up"`
	BytesDown     uint64 `json:"bytes_down"`
	ChunksSent    uint64 `json:"chunks_sent"`
	ChunksResent  uint64 `json:"chunks_resent"`    // again on another connection, after a loss of one
	ConnsOpen     int    `json:"connections_open"` // between the agents, now
	ConnsLost     int    `json:"connections_lost"` // died in mid-session
	ConnsWarm     int    `json:"connections_warm"` // taken from the pool
	Retransmits   uint64 `json:"retransmits"`      // TCP segments, this agent's sending side
	RTTMicros     uint64 `json:"rtt_micros"`       // smallest smoothed round trip between the agents
	BufferedBytes uint64 `json:"buffered_bytes"`   // received, not yet passed on
	WindowBytes   uint64 `json:"window_bytes"`     // credit granted to the peer
	ReorderChunks int    `json:"reorder_chunks"`   // chunks waiting for an earlier one
	Connections   int    `json:"connections"`      // p in use
	Why           string `json:"why_connections"`  // why that p
	// Where the congestion control is the agent's choice: the one in use for what
	// this agent sends, how often it was changed, and why it was the last time.
	Congestion    string `json:"congestion_control,omitempty"`
	Switches      int    `json:"congestion_switches,omitempty"`
	WhyCongestion string `json:"why_congestion,omitempty"`
}

// Session is a live session, as listings show it.
type Session struct {
	ID     SessionID      `json:"id"`
	Role   Role           `json:"role"`
	Phase  Phase          `json:"phase"`
	Client netip.AddrPort `json:"client"`
	Server netip.AddrPort `json:"server"`
	Peer   netip.Addr     `json:"peer"`
	Port   uint16         `json:"port"` // as in PrepareReply
	// Reply is the answer to prepare: a restarted controller needs it to find
	// the session's rules again.
	Reply     PrepareReply    `json:"reply"`
	Params    Params          `json:"params"`
	Started   time.Time       `json:"started"`
	SetupTime Duration        `json:"setup_time"` // prepare until running
	Counters  Counters        `json:"counters"`
	Context   json.RawMessage `json:"context,omitempty"`
}

// Reason says how a session ended.
type Reason string

// The reasons.
const (
	ReasonClosed      Reason = "closed"       // both directions by FIN
	ReasonClientReset Reason = "client-reset" // RST from the client
	ReasonServerReset Reason = "server-reset" // RST from the server
	ReasonPeerLost    Reason = "peer-lost"    // the other agent went silent or forgot the session
	ReasonPeerReset   Reason = "peer-reset"   // the other agent gave the session up
	ReasonAborted     Reason = "aborted"      // by the controller
	ReasonIdle        Reason = "idle"         // no byte for the idle time
	ReasonExpired     Reason = "expired"      // not committed, or the client did not come
	ReasonRefused     Reason = "refused"      // the server refused, did not answer or was not reachable
	ReasonFailed      Reason = "failed"       // a fault of this agent; Detail says which
	ReasonShutdown    Reason = "shutdown"     // the agent was stopped
)

// SessionRecord is a session that has ended.
type SessionRecord struct {
	// Seq grows by one with each record of an agent instance.
	Seq    uint64    `json:"seq"`
	Reason Reason    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Ended  time.Time `json:"ended"`
	Session
}

// Live is the part of a live session that an Event carries.
type Live struct {
	ID       SessionID `json:"id"`
	Role     Role      `json:"role"`
	Phase    Phase     `json:"phase"`
	Counters Counters  `json:"counters"`
}

// Event is one line of the event stream. The first of a stream repeats the
// records the agent still holds; a reader that saw (Instance, Seq) skips them.
// Live sessions are in one event a second; others tell only of ends. Three seconds
// without an event mean that the agent is silent.
type Event struct {
	Instance string          `json:"instance"`
	Status   Load            `json:"status"`
	Ended    []SessionRecord `json:"ended,omitempty"`
	Live     []Live          `json:"live,omitempty"`
}
