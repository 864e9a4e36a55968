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

// AgentRecord is an agent as it is kept in the store.
type AgentRecord struct {
	Name string `json:"name"`
	// URL is where its control API listens.
	URL string `json:"url"`
	// Addrs are its data addresses, at most one of each family.
	Addrs []netip.Addr `json:"addrs"`
	// MaxSessions bounds its sessions below what the agent itself accepts; 0: it decides.
	MaxSessions int  `json:"max_sessions,omitempty"`
	Draining    bool `json:"draining,omitempty"`
	// Announced says that the agent added itself.
	Announced bool      `json:"announced,omitempty"`
	Added     time.Time `json:"added"`
}

// Addr is the agent's data address of the same family as a.
func (r *AgentRecord) Addr(a netip.Addr) (netip.Addr, bool) {
	for _, own := range r.Addrs {
		if own.Is4() == a.Is4() {
			return own, true
		}
	}
	return netip.Addr{}, false
}

// same says whether two records are of one agent process.
func (r *AgentRecord) same(o *AgentRecord) bool {
	return r.URL == o.URL && slices.Equal(r.Addrs, o.Addrs)
}

// Liveness is what is known of an agent's health.
type Liveness string

// The states of an agent.
const (
	Unknown Liveness = "unknown" // not heard of yet
	Up      Liveness = "up"
	Silent  Liveness = "silent" // given up until it is heard again
)

// Place is where an address stands in the network.
type Place struct {
	At   network.PortRef
	MAC  openflow.MAC
	VLAN uint16
}

// PlaceOf is where a host stands.
func PlaceOf(h network.Host) Place { return Place{At: h.At, MAC: h.MAC, VLAN: h.VLAN} }

// State is what is known of an agent at one time. What it refers to is not to be modified.
type State struct {
	AgentRecord
	Liveness Liveness
	Error    string // what is wrong with it, if anything is
	LastSeen time.Time
	Status   control.Status
	// Sessions counts what has been taken and not been released, ours to know at once.
	Sessions int
	// Places are where its addresses were found in the network.
	Places map[netip.Addr]Place
	// Unplugged says that the port at which it stands is being watched, being down.
	Unplugged bool
}

// Limit is how many sessions the agent takes; zero if that is not known.
func (s *State) Limit() int {
	own, told := s.MaxSessions, s.Status.MaxSessions
	if own > 0 && (told == 0 || own < told) {
		return own
	}
	return told
}

// mismatch says that the agent does not have an address that it was added with.
func (s *State) mismatch() string {
	for _, addr := range s.Addrs {
		if len(s.Status.Addrs) > 0 && !slices.Contains(s.Status.Addrs, addr) {
			return fmt.Sprintf("does not carry %v: its own data addresses are %v; add it with those, or give it a second_address", addr, s.Status.Addrs)
		}
	}
	return ""
}

// Unfit says why the agent cannot take part in a connection to that address; empty if it
// can.
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

// ports lists those at which the agent stands.
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
	stored bool        // it was an earlier controller's
	mu     *sync.Mutex // of its registry; guards what follows
	state  State
	// news is when it was added, or was heard after a time without a word.
	news     time.Time
	instance string // of its events
	lastSeq  uint64 // of its records
	// missed are those of its addresses for which nobody answered when they were
	// looked for last.
	missed map[netip.Addr]bool
	// claim is what it announced last, if it is known otherwise.
	claim *AgentRecord
	// silentSince is when it was given up. refused says that its machine has then
	// refused the connection, so that it does not run.
	silentSince time.Time
	refused     bool
	// answered is when its machine last said that somebody listens at its control
	// port, while it was silent.
	answered time.Time
	// noAnswer is what that says of it that it did not when the agent was asked last
	// and its switch did, and knocked when that was.
	noAnswer error
	knocked  time.Time
	// searching says that it is being looked for now.
	searching bool
}

// State is what is known of the agent now.
func (a *Agent[C]) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Take counts one more session as the agent's, before it tells of it itself, so that those
// that are given away at the same time spread. Release undoes it.
func (a *Agent[C]) Take() { a.count(1) }

// Release undoes Take.
func (a *Agent[C]) Release() { a.count(-1) }

func (a *Agent[C]) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Sessions += n
}

// Assume tells where an address of the agent was when a controller last knew, unless it has
// been found since.
func (a *Agent[C]) Assume(addr netip.Addr, p Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.state.Places[addr]; !known {
		a.place(addr, p)
	}
}

// place takes in where an address stands, and reports whether that is new. The lock is held.
func (a *Agent[C]) place(addr netip.Addr, p Place) bool {
	if a.state.Places[addr] == p {
		return false
	}
	a.state.Places = maps.Clone(a.state.Places) // others may look at the old ones
	a.state.Places[addr] = p
	return true
}
