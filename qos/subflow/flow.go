package subflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/match"
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
}

// subflow is one from its SYN until it has been silent. Whoever changes its rules holds
// changing; mu guards what is not fixed.
type subflow struct {
	id       string
	changing sync.Mutex

	mu sync.Mutex
	stored
	placed, ended bool
	// waiting are SYNs that came while it was being placed.
	waiting []Held
	// counter is of the direction in which it carries more.
	counter way.Counter
	health  way.Health
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

// enter notes a path, and returns the SYNs that have waited for it. f.changing is locked.
func (f *subflow) enter(hops []network.Hop) (waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.placed {
		f.Moves++
	}
	waiting, f.waiting = f.waiting, nil
	f.placed, f.Hops, f.full, f.health = true, hops, 0, way.Whole()
	return waiting
}

// path is where the subflow goes, nil before it has been placed and after its end.
func (f *subflow) path() []network.Hop {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil
	}
	return f.Hops
}

// end says whether the subflow ends now, and returns the SYNs that wait. f.changing is locked.
func (f *subflow) end() (now bool, waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = !f.ended
	waiting, f.waiting, f.ended = f.waiting, nil, true
	return now, waiting
}
