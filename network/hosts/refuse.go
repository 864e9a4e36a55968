package hosts

import (
	"sync/atomic"

	"github.com/sluice-net/sluice/network/topology"
)

// Why says why a claim about a host was refused.
type Why uint8

// The reasons.
const (
	// Full: a bound was reached and no host gives way.
	Full Why = iota + 1
	// Pinned: the host or the address is pinned elsewhere, or virtual.
	Pinned
	// Answered: the host has answered where it was, just now or a moment ago.
	Answered
	// Crowded: as many claims are in doubt as may be.
	Crowded
	reasons
)

var whys = [reasons]string{Full: "full", Pinned: "pinned", Answered: "answered", Crowded: "crowded"}

// String is the reason in a word, as metrics have it.
func (w Why) String() string { return whys[w] }

// refusals counts the claims that were not believed, by why.
type refusals [reasons]atomic.Uint64

// refuse counts what is not believed about a host, nil for one that is not known.
func (r *refusals) refuse(e *entry, at topology.PortRef, why Why) Change {
	r[why].Add(1)
	c := Change{Kind: Refused, From: at, Why: why}
	if e != nil {
		c.Host = e.host()
	}
	return c
}

// Refused counts the claims that were not believed, by why.
func (t *Table) Refused() map[Why]uint64 {
	out := map[Why]uint64{}
	for w := Full; w < reasons; w++ {
		out[w] = t.refused[w].Load()
	}
	return out
}
