package control

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
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
	BufferedBytes    uint64  `json:"buffered_bytes"`      // payload held in buffers
}

// Status is the load together with what does not change while the agent runs.
type Status struct {
	Load
	// Instance differs after each start of the agent.
	Instance string `json:"instance"`
	// DrainRequests counts the requests to drain, or not to, since the start of the agent. A status
	// with a higher number is newer, in whichever order they arrive.
	DrainRequests uint64    `json:"drain_requests"`
	Started       time.Time `json:"started"`
	Version       string    `json:"version"`
	// Addrs holds the agent's data addresses, at most one of each family.
	Addrs []netip.Addr `json:"addrs"`
	// DataPorts holds the ports on which other agents connect.
	DataPorts []uint16 `json:"data_ports"`
	// SessionPorts are the agent's ports towards end hosts, which it uses only for sessions. The
	// zero range means that the agent does not report them.
	SessionPorts PortRange `json:"session_ports"`
	// CongestionControls and Transports list the congestion controls and the transports that the
	// agent's machine supports.
	CongestionControls []string `json:"congestion_controls,omitempty"`
	Transports         []string `json:"transports,omitempty"`
	// Peers describes the agents with which the agent works.
	Peers []PeerStatus `json:"peers,omitempty"`
	// PublicURL is the agent's URL for people, or "" if it has none.
	PublicURL string `json:"public_url,omitempty"`
	// Warnings names conditions that limit the agent's performance, and their remedies.
	Warnings []string `json:"warnings,omitempty"`
	// Drift counts what was not as the agent has declared it on its machine, by thing.
	Drift []drift.Count `json:"drift,omitempty"`
}

const (
	// maxWarnings bounds the number of an agent's warnings that are kept, and maxWarning the length
	// of each in bytes.
	maxWarnings, maxWarning = 64, 1000
	// maxDrift bounds the number of things that an agent has counted.
	maxDrift = 64
	// maxURL bounds the length of PublicURL in bytes.
	maxURL = 2048
)

// clip shortens the texts of a status, which are shown in logs, events and to people. It drops
// warnings beyond the first maxWarnings, counts beyond the first maxDrift, and a PublicURL that is too
// long.
func (s *Status) clip() {
	s.Warnings = s.Warnings[:min(len(s.Warnings), maxWarnings)]
	for i := range s.Warnings {
		s.Warnings[i] = clip(s.Warnings[i], maxWarning)
	}
	s.Drift = clipDrift(s.Drift)
	s.Instance, s.Version = clip(s.Instance, maxText), clip(s.Version, maxText)
	if len(s.PublicURL) > maxURL {
		s.PublicURL = ""
	}
}

// clipDrift shortens the texts of counts, and drops those beyond the first maxDrift.
func clipDrift(all []drift.Count) []drift.Count {
	all = all[:min(len(all), maxDrift)]
	for i := range all {
		all[i].Thing, all[i].Error = clip(all[i].Thing, maxText), clip(all[i].Error, maxText)
	}
	return all
}

// PeerStatus is an agent's view of another agent.
type PeerStatus struct {
	Addr netip.Addr `json:"addr"`
	// Silence is the time since the last message from the peer. Agents that work together send
	// twice a second.
	Silence Duration `json:"silence"`
}

// PortRange is a range of ports, both ends included.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// DrainRequest turns draining on or off. A draining agent refuses new sessions and carries the
// existing ones to their end.
type DrainRequest struct {
	On bool `json:"on"`
}

// Event is one line of the event stream. R is the type of records, and L that of work in progress.
// The first event of a stream repeats the records that the agent still holds. A reader recognises
// the records that it has seen by Instance and Seq, and skips them. One event a second also lists
// the work in progress. An agent that sends no event for three seconds is silent.
type Event[R, L any] struct {
	Instance string `json:"instance"`
	Status   Load   `json:"status"`
	// DrainRequests is as in Status.
	DrainRequests uint64 `json:"drain_requests"`
	// Seq is the number of the last record. Numbers are consecutive.
	Seq   uint64 `json:"seq"`
	Ended []R    `json:"ended,omitempty"`
	Live  []L    `json:"live,omitempty"`
	// Drift is as in Status. It comes with the work in progress.
	Drift []drift.Count `json:"drift,omitempty"`
}

// Duration is a time.Duration that JSON carries as text, such as "1m30s".
type Duration = units.Duration
