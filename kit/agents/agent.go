package agents

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// AgentRecord is the stored form of an agent.
type AgentRecord struct {
	Name string `json:"name"`
	// URL is the address of the agent's control API.
	URL string `json:"url"`
	// Addrs holds the agent's data addresses, at most one of each family.
	Addrs []netip.Addr `json:"addrs"`
	// MaxSessions bounds the agent's sessions below its own limit. Zero leaves the limit to the
	// agent.
	MaxSessions int  `json:"max_sessions,omitempty"`
	Draining    bool `json:"draining,omitempty"`
	// Announced reports whether the agent added itself.
	Announced bool      `json:"announced,omitempty"`
	Added     time.Time `json:"added"`
}

// Addr returns the agent's data address of the same family as a, and reports whether it has one.
func (r *AgentRecord) Addr(a netip.Addr) (netip.Addr, bool) {
	for _, own := range r.Addrs {
		if own.Is4() == a.Is4() {
			return own, true
		}
	}
	return netip.Addr{}, false
}

// sameProcess reports whether two records describe the same agent process.
func (r *AgentRecord) sameProcess(o *AgentRecord) bool {
	return r.URL == o.URL && slices.Equal(r.Addrs, o.Addrs)
}

// Liveness is what is known of an agent's health.
type Liveness string

// The states of an agent.
const (
	Unknown Liveness = "unknown" // not heard yet
	Up      Liveness = "up"
	Silent  Liveness = "silent" // not used until it is heard again
)

// Place is the place of an address in the network.
type Place struct {
	At   network.PortRef
	MAC  openflow.MAC
	VLAN uint16
}

// PlaceOf returns the place of a host.
func PlaceOf(h network.Host) Place { return Place{At: h.At, MAC: h.MAC, VLAN: h.VLAN} }

// State is what is known of an agent at one time. Callers must not modify what it refers to.
type State struct {
	AgentRecord
	Liveness Liveness
	Error    string // what is wrong with the agent, or ""
	LastSeen time.Time
	Status   control.Status
	// Sessions is the number of sessions that Take has counted, less those that Release has
	// removed. It is up to date before the agent reports the sessions.
	Sessions int
	// Places holds the places of those of its addresses that were found in the network.
	Places map[netip.Addr]Place
	// Unplugged reports that the agent's port is down and is being watched.
	Unplugged bool
}

// Limit returns the number of sessions that the agent accepts, or zero if it is not known.
func (s *State) Limit() int {
	own, told := s.MaxSessions, s.Status.MaxSessions
	if own > 0 && (told == 0 || own < told) {
		return own
	}
	return told
}

// mismatch returns a message if the agent does not have an address with which it was added, and ""
// otherwise.
func (s *State) mismatch() string {
	for _, addr := range s.Addrs {
		if len(s.Status.Addrs) > 0 && !slices.Contains(s.Status.Addrs, addr) {
			return fmt.Sprintf("does not carry %v: its own data addresses are %v; add it with those, or give it a second_address", addr, s.Status.Addrs)
		}
	}
	return ""
}

// Unfit returns why the agent cannot take part in a connection to an address of that family, or ""
// if it can.
func (s *State) Unfit(family netip.Addr) string {
	addr, ok := s.Addr(family)
	switch {
	case s.Liveness == Silent:
		return "is silent"
	case s.Liveness == Unknown:
		return "has not been reached yet"
	case s.Status.Instance == "":
		return "has not told its state yet"
	case s.Unplugged:
		return "is unplugged: its port is down"
	case s.Draining || s.Status.Draining:
		return "is draining"
	case !ok:
		return "has no address of the connection's family"
	}
	if why := s.mismatch(); why != "" && !slices.Contains(s.Status.Addrs, addr) {
		return why
	}
	if _, found := s.Places[addr]; !found {
		return "has not been found in the network"
	}
	return ""
}

// ports returns the ports behind which the agent is.
func (s *State) ports() (ports []network.PortRef) {
	for _, p := range s.Places {
		if !slices.Contains(ports, p.At) {
			ports = append(ports, p.At)
		}
	}
	return ports
}

// Agent is a known agent. Its methods may be called concurrently.
type Agent[C any] struct {
	Name   string
	Client C

	stop   context.CancelFunc
	stored bool        // the store had it when the controller started
	mu     *sync.Mutex // of its registry; guards what follows
	state  State
	// upSince is when the agent was added, or when it was last heard after a silence.
	upSince  time.Time
	instance string // the instance of its last event
	lastSeq  uint64 // the number of its last record
	// missed holds the addresses for which no host answered at the last search.
	missed map[netip.Addr]bool
	// claim is the agent's last announcement if it differs from the agent's record.
	claim *AgentRecord
	// silentSince is when the agent became silent. refused reports that its machine then refused
	// the connection, so that the agent does not run.
	silentSince time.Time
	refused     bool
	// answered is when the agent's machine last accepted a connection to the control port while the
	// agent was silent.
	answered time.Time
	// noAnswer is the result of a probe in which the switch answered but the agent's machine did
	// not, and knocked is the time of that probe.
	noAnswer error
	knocked  time.Time
	drift    driftState
	// searching reports that a search for the agent's addresses is running.
	searching bool
}

// State returns what is known of the agent now.
func (a *Agent[C]) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Take counts one more session of the agent before the agent reports it, so that sessions which
// start at the same time are spread over the agents. Release undoes it.
func (a *Agent[C]) Take() { a.count(1) }

// Release undoes Take.
func (a *Agent[C]) Release() { a.count(-1) }

func (a *Agent[C]) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Sessions += n
}

// Assume sets the last known place of an address of the agent, unless the address has been found
// since.
func (a *Agent[C]) Assume(addr netip.Addr, p Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.state.Places[addr]; !known {
		a.place(addr, p)
	}
}

// place records the place of an address, and reports whether it has changed. The lock is held.
func (a *Agent[C]) place(addr netip.Addr, p Place) bool {
	if a.state.Places[addr] == p {
		return false
	}
	a.state.Places = maps.Clone(a.state.Places) // callers of State may still use the old map
	a.state.Places[addr] = p
	return true
}
