package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/sos/agentapi"
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

// addr is the agent's data address of the same family as a.
func (r *AgentRecord) addr(a netip.Addr) (netip.Addr, bool) {
	for _, own := range r.Addrs {
		if own.Is4() == a.Is4() {
			return own, true
		}
	}
	return netip.Addr{}, false
}

// Liveness is what is known of an agent's health.
type Liveness string

// The states of an agent.
const (
	AgentUnknown Liveness = "unknown" // not heard of yet
	AgentUp      Liveness = "up"
	AgentSilent  Liveness = "silent" // given up until it is heard again
)

// agentClient is the part of *agentapi.Client that the service uses.
type agentClient interface {
	Prepare(context.Context, agentapi.PrepareRequest) (agentapi.PrepareReply, error)
	Commit(context.Context, agentapi.SessionID) error
	Abort(context.Context, agentapi.SessionID) error
	Sessions(context.Context) ([]agentapi.Session, error)
	Status(context.Context) (agentapi.Status, error)
	Drain(context.Context, bool) (agentapi.Status, error)
	Watch(context.Context, func(agentapi.Event)) error
	Knock(context.Context) error
	Close()
}

// agent is a known agent with its present state, which belongs to the service's
// lock but for the client.
type agent struct {
	record AgentRecord
	client agentClient
	stop   context.CancelFunc
	stored bool // it was an earlier controller's

	liveness Liveness
	err      string
	lastSeen time.Time
	// news is when it was added, or was heard after a time without a word.
	news     time.Time
	status   agentapi.Status
	instance string
	lastSeq  uint64
	// sessions counts those being set up or carried, ours to know at once.
	sessions int
	// places are where its addresses were found in the network.
	places map[netip.Addr]place
	// missed are those of its addresses for which nobody answered when they were
	// looked for last.
	missed map[netip.Addr]bool
	// claim is what it announced last, if it is known otherwise.
	claim *claim
	// silentSince is when it was given up. refused says that its machine has then
	// refused the connection, so that it does not run.
	silentSince time.Time
	refused     bool
	// answered is when its machine last said that somebody listens at its control
	// port, while it was silent.
	answered time.Time
	// untold are sessions that it could not be told the end of.
	untold []agentapi.SessionID
	// unplugged says that the port at which it stands is being watched, being down.
	unplugged bool
	// searching says that it is being looked for now.
	searching bool
}

// place is where an address stands in the network.
type place struct {
	at   network.PortRef
	mac  openflow.MAC
	vlan uint16
}

func placeOf(h network.Host) place { return place{at: h.At, mac: h.MAC, vlan: h.VLAN} }

// limit is how many sessions the agent takes; zero if that is not known.
func (a *agent) limit() int {
	own, told := a.record.MaxSessions, a.status.MaxSessions
	if own > 0 && (told == 0 || own < told) {
		return own
	}
	return told
}

// mismatch says that the agent does not have an address that it was added with.
func (a *agent) mismatch() string {
	for _, addr := range a.record.Addrs {
		if len(a.status.Addrs) > 0 && !slices.Contains(a.status.Addrs, addr) {
			return fmt.Sprintf("does not carry %v: its own data addresses are %v; add it with those, or give it a second_address", addr, a.status.Addrs)
		}
	}
	return ""
}

// unfit says why the agent cannot take part in a connection to that address.
func (a *agent) unfit(family netip.Addr) string {
	addr, ok := a.record.addr(family)
	switch {
	case a.liveness == AgentSilent:
		return "is silent"
	case a.liveness == AgentUnknown:
		return "has not been reached yet"
	case len(a.status.DataPorts) == 0:
		return "has not told its data ports yet"
	case a.unplugged:
		return "is unplugged: its port is down"
	case a.record.Draining || a.status.Draining:
		return "is draining"
	case !ok:
		return "has no address of the connection's family"
	}
	if why := a.mismatch(); why != "" && !slices.Contains(a.status.Addrs, addr) {
		return why
	}
	if _, found := a.places[addr]; !found {
		return "has not been found in the network"
	}
	return ""
}
