package control

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/units"
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
	BufferedBytes    uint64  `json:"buffered_bytes"`      // payload that it holds
}

// Status is the load together with what does not change while the agent runs.
type Status struct {
	Load
	// Instance differs after each start of the agent.
	Instance string `json:"instance"`
	// DrainRequests counts those to drain, or not to, since then: what an agent says after more of
	// them is newer, in whichever order it is heard.
	DrainRequests uint64    `json:"drain_requests"`
	Started       time.Time `json:"started"`
	Version       string    `json:"version"`
	// Addrs are its data addresses, at most one of each family.
	Addrs []netip.Addr `json:"addrs"`
	// DataPorts are those at which other agents reach it.
	DataPorts []uint16 `json:"data_ports"`
	// SessionPorts are the agent's ports towards end hosts: it uses them for
	// nothing but sessions. The zero range is that of an agent that does not say.
	SessionPorts PortRange `json:"session_ports"`
	// What the service lets its agents choose from.
	CongestionControls []string `json:"congestion_controls,omitempty"`
	Transports         []string `json:"transports,omitempty"`
	// Peers are the agents with which it works.
	Peers []PeerStatus `json:"peers,omitempty"`
	// PublicURL is where people reach it; empty for an agent that has nothing for them.
	PublicURL string `json:"public_url,omitempty"`
	// Warnings say what keeps the agent below its best, and the remedy.
	Warnings []string `json:"warnings,omitempty"`
}

const (
	// maxWarnings is how many warnings of an agent are kept, and maxWarning how long each is,
	// in bytes.
	maxWarnings, maxWarning = 64, 1000
	// maxURL is the longest PublicURL, in bytes.
	maxURL = 2048
)

// clip shortens the texts of a status, which go to logs, events and people, and drops warnings
// beyond the first maxWarnings and a PublicURL that is too long.
func (s *Status) clip() {
	s.Warnings = s.Warnings[:min(len(s.Warnings), maxWarnings)]
	for i := range s.Warnings {
		s.Warnings[i] = clip(s.Warnings[i], maxWarning)
	}
	s.Instance, s.Version = clip(s.Instance, maxText), clip(s.Version, maxText)
	if len(s.PublicURL) > maxURL {
		s.PublicURL = ""
	}
}

// PeerStatus is what an agent knows of another.
type PeerStatus struct {
	Addr netip.Addr `json:"addr"`
	// Silence is how long nothing has come from it; agents that work together speak
	// twice a second.
	Silence Duration `json:"silence"`
}

// PortRange is a range of ports, both ends included.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// DrainRequest turns draining on or off. A draining agent refuses new sessions
// and carries the present ones to their end.
type DrainRequest struct {
	On bool `json:"on"`
}

// Event is one line of the event stream. R is what an agent records of what has happened,
// L what it has under way. The first event of a stream repeats the records that the agent
// still holds; a reader that has seen those of an instance up to a number skips them. What
// is under way is in one event a second. Three seconds without an event mean that the agent
// is silent.
type Event[R, L any] struct {
	Instance string `json:"instance"`
	Status   Load   `json:"status"`
	// DrainRequests is as in Status.
	DrainRequests uint64 `json:"drain_requests"`
	// Seq numbers the last record; each has the number after the one before it.
	Seq   uint64 `json:"seq"`
	Ended []R    `json:"ended,omitempty"`
	Live  []L    `json:"live,omitempty"`
}

// Duration is a time.Duration that JSON carries as text, such as "1m30s".
type Duration = units.Duration
