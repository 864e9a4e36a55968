package agentapi

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/kit/control"
)

// Duration is a time.Duration that JSON carries as text, such as "1m30s".
type Duration = control.Duration

// SessionID identifies one session at both of its agents. Its text form is 32 hex digits.
type SessionID [16]byte

// NewSessionID returns a random session id.
func NewSessionID() SessionID {
	var id SessionID
	_, _ = rand.Read(id[:]) // never fails: crypto/rand aborts the program instead
	return id
}

// ParseSessionID parses the 32 hex digits that String returns.
func ParseSessionID(s string) (SessionID, error) {
	var id SessionID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("session id %q: want %d hex digits", s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("session id %q: %w", s, err)
	}
	return id, nil
}

// String returns the id as 32 hex digits.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id SessionID) IsZero() bool { return id == SessionID{} }

// MarshalText implements encoding.TextMarshaler.
func (id SessionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *SessionID) UnmarshalText(b []byte) error {
	v, err := ParseSessionID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// Key is the secret of one session, shared by its two agents and the
// controller. It prints as "[key]" so that no log can hold it; only JSON
// carries it, as base64.
type Key [32]byte

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: crypto/rand aborts the program instead
	return k
}

// String hides the key.
func (k Key) String() string { return "[key]" }

// GoString hides the key from %#v.
func (k Key) GoString() string { return "[key]" }

// IsZero reports whether the key was never set.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, k[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return errors.New("key: not base64")
	}
	if len(raw) != len(k) {
		return fmt.Errorf("key: %d bytes, want %d", len(raw), len(k))
	}
	copy(k[:], raw)
	return nil
}

// Role is the role of an agent in a session. It names the end host that the agent serves.
type Role string

// The two roles.
const (
	RoleClient Role = "client" // listens for the client, dials the peer agent
	RoleServer Role = "server" // dials the server, accepts from the peer agent
)

// Peer is the other agent of a session.
type Peer struct {
	// Addr is the peer's data address.
	Addr netip.Addr `json:"addr"`
	// DataPorts lists the peer's data ports, one for each path. The client's agent dials
	// them; at the server's agent the list may be empty.
	DataPorts []uint16 `json:"data_ports,omitempty"`
}

// MaxConnections bounds the connections that one session may have between its agents. The
// controller refuses a greater number before it asks an agent.
const MaxConnections = 64

// MaxPathRate bounds Path.Rate.
const MaxPathRate = 1e13

// Path is a controller's knowledge about one path, in the direction in which the agent sends.
type Path struct {
	Rate uint64   `json:"rate"` // what the agent may use of its links in bits a second, headers included; zero if not known
	RTT  Duration `json:"rtt"`  // round trip without queues; zero if not known
}

// PayloadShare is the share of a link's rate that is payload in segments of the usual size.
const PayloadShare = 0.955

// Limit is a controller's limit of the rate of one path. Other senders that the controller knows
// share links of the path.
type Limit struct {
	Peer netip.Addr `json:"peer"`
	Port uint16     `json:"port"` // the data port of the side that accepts connections
	Pace uint64     `json:"pace"` // bits of payload a second that all sessions together may send; zero while the links' capacity is not known
	Rate uint64     `json:"rate"` // bits of payload a second that the path's links carry; zero if not known
}

// Limits bounds the rates of an agent's paths. It replaces all earlier limits, and expires after
// Lifetime, so that an agent whose controller has ended is free again.
type Limits struct {
	Limits   []Limit  `json:"limits"`   // at most MaxLimits
	Lifetime Duration `json:"lifetime"` // above zero, at most MaxLimitLifetime
}

// These bounds apply to Limits.
const (
	MaxLimits        = 256
	MaxLimitLifetime = Duration(time.Minute)
)

// Params holds the parameters of one session. A zero value stands for the agent's default.
type Params struct {
	Connections       int      `json:"connections,omitempty"`        // p; 0: auto
	ChunkBytes        int      `json:"chunk_bytes,omitempty"`        // c
	Queue             int      `json:"queue,omitempty"`              // q, chunks that each connection may run ahead
	Transport         string   `json:"transport,omitempty"`          // "tcp"
	CongestionControl string   `json:"congestion_control,omitempty"` // "bbr", "cubic", what the kernel has; empty: the agent's choice
	TLS               bool     `json:"tls,omitempty"`                // TLS 1.3 on the data connections
	Paths             int      `json:"paths,omitempty"`              // how many of the peer's data ports to use; 0: all
	Share             Share    `json:"share,omitempty"`              // what is left to other traffic on the path; empty: polite
	Weight            int      `json:"weight,omitempty"`             // weight of the session among the agents' sessions, up to MaxWeight; 0: 1
	Fairness          Fairness `json:"fairness,omitempty"`           // what counts as one in that division; empty: each session
}

// MaxWeight bounds Params.Weight.
const MaxWeight = 100

// Share determines the part of a path that a session leaves to traffic that is not its agent's.
type Share string

// The shares.
const (
	SharePolite Share = "polite" // gives way down to a quarter of the path
	ShareEqual  Share = "equal"  // gives way down to a half
	ShareAll    Share = "all"    // does not give way, and is not limited to the path's rate
)

// Valid reports whether s is one of the shares, or empty.
func (s Share) Valid() bool {
	return s == "" || s == SharePolite || s == ShareEqual || s == ShareAll
}

// Fairness determines what counts as one when an agent divides the rate of a path among its sessions.
type Fairness string

// The ways of division.
const (
	FairnessSession Fairness = "session" // each session
	FairnessClient  Fairness = "client"  // all sessions of a client that have this fairness
)

// Valid reports whether f is one of the ways of division, or empty.
func (f Fairness) Valid() bool {
	return f == "" || f == FairnessSession || f == FairnessClient
}

// PrepareRequest announces a session to an agent.
type PrepareRequest struct {
	ID     SessionID      `json:"id"`
	Key    Key            `json:"key"`
	Role   Role           `json:"role"`
	Client netip.AddrPort `json:"client"`
	Server netip.AddrPort `json:"server"`
	Peer   Peer           `json:"peer"`
	Params Params         `json:"params"`
	// Paths holds the controller's knowledge about the paths to the peer, one for each data port
	// that is used, in their order. The agent's own measurements take precedence.
	Paths []Path `json:"paths,omitempty"`
	// Idle is the time without a byte after which the session ends; 0 means the agent's
	// default.
	Idle Duration `json:"idle,omitempty"`
	// PeerTimeout is the time without a sign of life from the peer after which the session ends,
	// even if nothing shows that the peer is dead; 0 means the agent's default.
	PeerTimeout Duration `json:"peer_timeout,omitempty"`
	// Context is data of the controller, at most 16 KiB, which the agent does not interpret. The
	// agent returns it in listings and records.
	Context json.RawMessage `json:"context,omitempty"`
	// Marks holds the DSCPs of packets that the agent sends for the session.
	Marks Marks `json:"marks,omitzero"`
}

// Marks holds the DSCPs of packets that an agent sends for a session. An agent removes them from a
// connection that it keeps for another session.
type Marks struct {
	Peer uint8 `json:"peer,omitempty"` // to the other agent
	End  uint8 `json:"end,omitempty"`  // to the agent's own end host
}

// PrepareReply describes the sockets that the agent has bound for a session.
type PrepareReply struct {
	// Addr is the agent's data address.
	Addr netip.Addr `json:"addr"`
	// Port is, in role client, the port on which the agent listens for the client and, in
	// role server, the local port from which it will dial the server.
	Port uint16 `json:"port"`
	// DataPorts lists the agent's data ports, one for each path.
	DataPorts []uint16 `json:"data_ports"`
	// MAC is the address of the interface that carries Addr.
	MAC string `json:"mac,omitempty"`
	// OnLink reports whether the agent's own end host is on the agent's subnet.
	OnLink bool `json:"on_link"`
	// PeerOnLink reports whether the other agent is on the agent's subnet. Frames to it then carry
	// its own MAC address, not a router's.
	PeerOnLink bool `json:"peer_on_link"`
	// NextHopMAC is the MAC address of the agent's next hop towards the other end host. Rule 7 (or
	// 2) must write it as source if the ends are behind routers. It is empty while the agent does
	// not know it.
	NextHopMAC string `json:"next_hop_mac,omitempty"`
	// NextHopEndMAC is the MAC address of the agent's next hop towards its own end host. It is
	// empty while the agent does not know it.
	NextHopEndMAC string `json:"next_hop_end_mac,omitempty"`
}
