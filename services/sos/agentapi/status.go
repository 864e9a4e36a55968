package agentapi

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Phase is the phase of a live session.
type Phase string

// The phases, in order.
const (
	PhasePrepared  Phase = "prepared"  // ports are bound
	PhaseCommitted Phase = "committed" // the server is being dialled, or the agent waits for the client
	PhaseRunning   Phase = "running"   // the end host is connected and the peer has proved that it holds the key
	PhaseClosing   Phase = "closing"   // the end host is done; connections to the peer are being released
)

// Counters holds the figures of one session. Up is the direction from the client to the server.
type Counters struct {
	BytesUp       uint64 `json:"bytes_up"`
	BytesDown     uint64 `json:"bytes_down"`
	ChunksSent    uint64 `json:"chunks_sent"`
	ChunksResent  uint64 `json:"chunks_resent"`    // sent again on another connection, after a connection was lost
	ConnsOpen     int    `json:"connections_open"` // between the agents, now
	ConnsLost     int    `json:"connections_lost"` // died in mid-session
	ConnsWarm     int    `json:"connections_warm"` // taken from the pool
	Retransmits   uint64 `json:"retransmits"`      // TCP segments that this agent has sent again
	RTTMicros     uint64 `json:"rtt_micros"`       // least smoothed round trip between the agents
	BufferedBytes uint64 `json:"buffered_bytes"`   // bytes received and not passed on yet
	WindowBytes   uint64 `json:"window_bytes"`     // credit granted to the peer
	ReorderChunks int    `json:"reorder_chunks"`   // chunks waiting for an earlier one
	Connections   int    `json:"connections"`      // number of connections wanted (p)
	Why           string `json:"why_connections"`  // why this number
	// Start describes how fast the agent started to send to the peer, and why. Pace is the rate at
	// which it may send now, in bytes of payload a second; zero if the rate is not limited.
	Start string `json:"start,omitempty"`
	Pace  uint64 `json:"pace,omitempty"`
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
	SetupTime Duration        `json:"setup_time"` // from prepare until running
	Counters  Counters        `json:"counters"`
	Context   json.RawMessage `json:"context,omitempty"`
	Marks     Marks           `json:"marks,omitzero"`
}

// Reason is the reason why a session ended.
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
	Reason Reason    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Ended  time.Time `json:"ended"`
	Session
}

// RateSource tells how an agent has learned the rate of a path. It is empty if the rate is not known.
type RateSource string

// The sources.
const (
	SourceMeasured RateSource = "measured" // the path has shown it
	SourceDeclared RateSource = "declared" // by the controller, from the links of the path
	SourceFile     RateSource = "file"     // measured before the agent was started last
)

// PathStatus is an agent's knowledge about one path.
type PathStatus struct {
	Peer      netip.Addr `json:"peer"`
	Port      uint16     `json:"port"`                      // the data port of the side that accepts connections
	Rate      uint64     `json:"bits_per_second"`           // of the path, in bits of payload a second; zero if not known
	Source    RateSource `json:"source,omitempty"`          // how Rate was learned
	Doubtful  bool       `json:"doubtful"`                  // whether Rate was not shown for a while, or lowered beside others, and is tried at half
	Seen      time.Time  `json:"seen"`                      // when the path last showed its rate; zero for never
	RTT       Duration   `json:"rtt"`                       // round trip without a queue; zero if not known
	Loss      float64    `json:"loss"`                      // share of the bytes that were retransmitted lately
	Queue     Duration   `json:"queue"`                     // how much longer the round trip was at the last update
	Pace      uint64     `json:"pace_bits_per_second"`      // bits of payload a second that all sessions together may send; zero while none sends
	Delivered uint64     `json:"delivered_bits_per_second"` // bits of payload a second that are delivered now
	Sessions  int        `json:"sessions"`                  // sessions that have more to send than they may
	Phase     string     `json:"phase"`                     // the activity of the agent: find, try, hold, grow or drain
	// Limit is the pace, in bits of payload a second, to which the controller limits the path,
	// because others share its links; zero if it does not.
	Limit uint64 `json:"limit_bits_per_second"`
	// Queued reports whether the path has had a queue that lasts since the last Limits.
	Queued bool `json:"queued"`
}

// Live is the part of a live session that an Event carries.
type Live struct {
	ID       SessionID `json:"id"`
	Role     Role      `json:"role"`
	Phase    Phase     `json:"phase"`
	Counters Counters  `json:"counters"`
}
