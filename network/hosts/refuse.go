package hosts

import (
	"sync/atomic"

	"github.com/sluice-net/sluice/network/topology"
)

// Reason is the reason for which a claim about a host was refused.
type Reason uint8

// The reasons for refusing a claim.
const (
	// Full means that a limit is reached and no host can be evicted.
	Full Reason = iota + 1
	// Pinned means that the host or the address is pinned elsewhere, or virtual.
	Pinned
	// Answered means that the host has answered at its old place, just now or a moment ago.
	Answered
	// TooManyClaims means that too many claims are pending.
	TooManyClaims
	numReasons
)

var reasonNames = [numReasons]string{Full: "full", Pinned: "pinned", Answered: "answered", TooManyClaims: "crowded"}

// String returns the reason as metrics name it.
func (w Reason) String() string { return reasonNames[w] }

// refusals counts the refused claims by reason.
type refusals [numReasons]atomic.Uint64

// refuse counts a refused claim and returns the change that reports it. e is nil for an unknown
// host.
func (r *refusals) refuse(e *entry, at topology.PortRef, why Reason) Change {
	r[why].Add(1)
	c := Change{Kind: ClaimRefused, From: at, Reason: why}
	if e != nil {
		c.Host = e.host()
	}
	return c
}

// Refused returns the number of refused claims by reason.
func (t *Table) Refused() map[Reason]uint64 {
	out := map[Reason]uint64{}
	for w := Full; w < numReasons; w++ {
		out[w] = t.refused[w].Load()
	}
	return out
}
