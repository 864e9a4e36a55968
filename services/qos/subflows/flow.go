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
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// connection identifies an MPTCP connection by the token that its receiver has chosen. The token is
// unique at that receiver only.
type connection struct {
	Receiver netip.Addr `json:"receiver"`
	Token    uint32     `json:"token"`
}

// stored is a subflow as the store keeps it. All fields but Hops and Moves never change.
type stored struct {
	Header     match.Header    `json:"header"`
	Connection connection      `json:"connection"`
	From       network.PortRef `json:"from"`
	To         network.PortRef `json:"to"`
	Since      time.Time       `json:"since"`
	Hops       []network.Hop   `json:"hops"`
	Moves      int             `json:"moves,omitempty"`
	// Plain reports whether the entry is a whole connection of plain TCP.
	Plain bool `json:"plain,omitempty"`
	// Meters holds the meters that the subflow passes. It is set in the store only.
	Meters []guard.Stored `json:"meters,omitempty"`
}

// subflow is a further subflow, from its SYN until it has been silent for the idle timeout.
// changing is locked while the subflow's rules are changed. mu guards the fields after it, except
// those of stored that never change.
type subflow struct {
	id       string
	changing sync.Mutex

	mu sync.Mutex
	stored
	placed, ended bool
	// chosen is the path that was chosen for the subflow and counts until its rules are written.
	chosen []network.Hop
	// silent reports whether the subflow carried no traffic at the last reading.
	silent bool
	// failed reports whether the subflow could not be placed. Such a subflow is kept for the idle
	// timeout, because otherwise each repetition of its SYN would cause a search for paths.
	failed bool
	// waiting holds SYNs that arrived while the subflow was being placed.
	waiting  []Held
	counters [directions]flowpath.Counter
	// metered lists the links on which the subflow's rules use a meter.
	metered []reserve.Link
	health  flowpath.Health
	// full counts consecutive readings in which a full link limited the subflow. After a move, that
	// is not checked before settleUntil.
	full        int
	settleUntil time.Time
}

// identify returns the identifier of the subflow with the given header.
func identify(h match.Header) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v/%d", h, h.VLAN))
	return hex.EncodeToString(sum[:6])
}

const keyPrefix = "subflow/"

// key returns the subflow's key in the ledger.
func (f *subflow) key() string { return keyPrefix + f.id }

// holdSYN holds a SYN of a subflow that is being placed, together with the subflow's first SYN.
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

// setPath records the subflow's path and held, the links on which it passes a meter. It returns the
// SYNs that have waited for the path. f.changing is locked.
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

// pathAndMeters returns the subflow's path, like path does, and the links on which the subflow
// passes a meter.
func (f *subflow) pathAndMeters() (hops []network.Hop, held []reserve.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.placed || f.ended {
		return nil, nil
	}
	return f.Hops, f.metered
}

// currentRate returns the rate of the subflow at the last reading, in bits per second, in the
// direction with the higher rate. The lock is held.
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

// countedPath returns the path of the subflow, or the path chosen for it, which counts when paths
// for other subflows of its connection are searched. It returns nil if the subflow is silent or has
// ended.
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

// markFailed records that the subflow cannot be placed, and returns its held SYNs.
func (f *subflow) markFailed() []Held {
	_, waiting := f.markEnded()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
	return waiting
}

// markEnded marks the subflow as ended, reports whether it had not ended before, and returns its
// held SYNs. f.changing is locked.
func (f *subflow) markEnded() (now bool, waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = !f.ended
	waiting, f.waiting, f.ended = f.waiting, nil, true
	return now, waiting
}

// Held is a SYN that is being held, such as a *network.Held.
type Held interface {
	// Release sends the SYN through the rules that are installed now. Output sends it with the
	// given actions.
	Release() error
	Output(actions []openflow.Action) error
}

// maxWaiting bounds the SYNs of one subflow that are held during its placement. There may be
// several, because hosts repeat SYNs.
const maxWaiting = 4

// These are the directions of a subflow.
const (
	forward = iota
	reverse
	directions
)
