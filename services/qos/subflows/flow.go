package subflows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// connection identifies an MPTCP connection by the token that its receiver has chosen,
// which is unique only there.
type connection struct {
	Receiver netip.Addr `json:"receiver"`
	Token    uint32     `json:"token"`
}

// stored is a subflow as the store keeps it. All fields but Hops and Moves are fixed.
type stored struct {
	Header     match.Header    `json:"header"`
	Connection connection      `json:"connection"`
	From       network.PortRef `json:"from"`
	To         network.PortRef `json:"to"`
	Since      time.Time       `json:"since"`
	Hops       []network.Hop   `json:"hops"`
	Moves      int             `json:"moves,omitempty"`
	// Plain reports that it is the whole of a connection of plain TCP.
	Plain bool `json:"plain,omitempty"`
	// Meters holds the meters that it passes. It is set in the store only.
	Meters []guard.Stored `json:"meters,omitempty"`
}

// subflow is a further subflow from its SYN until it has been silent. Whoever changes its
// rules holds changing; mu guards what is not fixed.
type subflow struct {
	id       string
	changing sync.Mutex

	mu sync.Mutex
	stored
	placed, ended bool
	// chosen is its path until its rules are written.
	chosen []network.Hop
	// silent reports that it carried nothing at the last reading.
	silent bool
	// failed reports that it could not be placed. It stays known for as long as a silent
	// one, because otherwise a sender of SYNs that cannot be placed would cause a search
	// for paths with each of them.
	failed bool
	// waiting holds SYNs that arrived while it was being placed.
	waiting  []Held
	counters [directions]flowpath.Counter
	// metered lists the links on which its rules pass a meter.
	metered []reserve.Link
	health  flowpath.Health
	// full counts readings in a row that show it limited by a full link. It is not checked
	// before settleUntil, after a move.
	full        int
	settleUntil time.Time
}

// identify returns the identifier of a header.
func identify(h match.Header) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v/%d", h, h.VLAN))
	return hex.EncodeToString(sum[:6])
}

const keyPrefix = "subflow/"

// key returns the subflow's key in the ledger.
func (f *subflow) key() string { return keyPrefix + f.id }

// holdSYN holds a SYN together with the first one.
func (f *subflow) holdSYN(hold func() (Held, error)) network.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.placed || f.ended || len(f.waiting) >= maxWaiting {
		return network.Continue
	}
	held, err := hold()
	if err != nil {
		return network.Continue
	}
	f.waiting = append(f.waiting, held)
	return network.Stop
}

// setPath records a path and the links on which a meter is passed, and returns the SYNs
// that have waited for it. f.changing is locked.
func (f *subflow) setPath(hops []network.Hop, held []reserve.Link) (waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.placed && !slices.Equal(f.Hops, hops) {
		f.Moves++
	}
	waiting, f.waiting = f.waiting, nil
	f.placed, f.Hops, f.metered, f.full, f.health = true, hops, held, 0, flowpath.Intact()
	return waiting
}

// pathAndMeters returns the subflow's path, as path does, and the links on which it passes
// a meter.
func (f *subflow) pathAndMeters() (hops []network.Hop, held []reserve.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil, nil
	}
	return f.Hops, f.metered
}

// currentRate returns the rate of the subflow at the last reading, in the direction that
// carried more, in bits per second. The lock is held.
func (f *subflow) currentRate() uint64 {
	return max(f.counters[forward].Rate, f.counters[reverse].Rate)
}

// path returns the subflow's path; nil before it has been placed and after its end.
func (f *subflow) path() []network.Hop {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil
	}
	return f.Hops
}

// countedPath returns the path of the subflow, or the one chosen for it, as it counts for
// the other subflows of its connection; nil if it is silent or over.
func (f *subflow) countedPath() []network.Hop {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended || f.silent:
		return nil
	case f.placed:
		return f.Hops
	}
	return f.chosen
}

// rate locks the subflow and calls currentRate.
func (f *subflow) rate() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.currentRate()
}

// markFailed records that the subflow cannot be placed, and returns the SYNs that wait.
func (f *subflow) markFailed() []Held {
	_, waiting := f.markEnded()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
	return waiting
}

// markEnded marks the subflow as ended, reports whether it was not before, and returns the
// SYNs that wait. f.changing is locked.
func (f *subflow) markEnded() (now bool, waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = !f.ended
	waiting, f.waiting, f.ended = f.waiting, nil, true
	return now, waiting
}
