package subflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/guard"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

// connection names an MPTCP connection: by the token that its receiver has chosen, which is
// unique there alone.
type connection struct {
	Receiver netip.Addr `json:"receiver"`
	Token    uint32     `json:"token"`
}

// stored is a subflow as the store keeps it. All but Hops and Moves is fixed.
type stored struct {
	Header     match.Header    `json:"header"`
	Connection connection      `json:"connection"`
	From       network.PortRef `json:"from"`
	To         network.PortRef `json:"to"`
	Since      time.Time       `json:"since"`
	Hops       []network.Hop   `json:"hops"`
	Moves      int             `json:"moves,omitempty"`
	// Plain says that it is all of a connection of plain TCP.
	Plain bool `json:"plain,omitempty"`
	// Meters are those that it passes, in the store alone.
	Meters []guard.Stored `json:"meters,omitempty"`
}

// subflow is one from its SYN until it has been silent. Whoever changes its rules holds
// changing; mu guards what is not fixed.
type subflow struct {
	id       string
	changing sync.Mutex

	mu sync.Mutex
	stored
	placed, ended bool
	// chosen is where it is to go, until its rules are written.
	chosen []network.Hop
	// silent says that it carried nothing at the last reading.
	silent bool
	// failed says that it could not be placed. It stays known for as long as a silent one, or
	// whoever sends what cannot be placed would have paths sought for each SYN.
	failed bool
	// waiting are SYNs that came while it was being placed.
	waiting  []Held
	counters [directions]way.Counter
	// held are the links on which its rules pass a meter.
	held   []reserve.Link
	health way.Health
	// full counts readings in a row that show it held up by a full link; it is not looked at
	// before calm, after a move.
	full int
	calm time.Time
}

// identify gives a header its short name.
func identify(h match.Header) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v/%d", h, h.VLAN))
	return hex.EncodeToString(sum[:6])
}

const keyPrefix = "subflow/"

// key is the subflow's name in the ledger.
func (f *subflow) key() string { return keyPrefix + f.id }

// join lets a SYN wait with the first one.
func (f *subflow) join(hold func() (Held, error)) network.Verdict {
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

// enter notes a path with the links on which a meter is passed, and returns the SYNs that have
// waited for it. f.changing is locked.
func (f *subflow) enter(hops []network.Hop, held []reserve.Link) (waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.placed && !slices.Equal(f.Hops, hops) {
		f.Moves++
	}
	waiting, f.waiting = f.waiting, nil
	f.placed, f.Hops, f.held, f.full, f.health = true, hops, held, 0, way.Whole()
	return waiting
}

// where is the subflow's path as path has it, and the links on which it passes a meter.
func (f *subflow) where() (hops []network.Hop, held []reserve.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil, nil
	}
	return f.Hops, f.held
}

// carries is what the subflow carried at the last reading in the direction of more, in bits per
// second. The lock is held.
func (f *subflow) carries() uint64 { return max(f.counters[there].Rate, f.counters[back].Rate) }

// path is where the subflow goes, nil before it has been placed and after its end.
func (f *subflow) path() []network.Hop {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil
	}
	return f.Hops
}

// counts is where the subflow goes, or is to go, for the others of its connection; nil if it is silent or over.
func (f *subflow) counts() []network.Hop {
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

// rate is carries without the lock.
func (f *subflow) rate() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.carries()
}

// fail notes that the subflow cannot be placed, and returns the SYNs that wait.
func (f *subflow) fail() []Held {
	_, waiting := f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
	return waiting
}

// end says whether the subflow ends now, and returns the SYNs that wait. f.changing is locked.
func (f *subflow) end() (now bool, waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = !f.ended
	waiting, f.waiting, f.ended = f.waiting, nil, true
	return now, waiting
}
