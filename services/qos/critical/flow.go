package critical

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// State is the state of a flow.
type State string

// The states of a flow.
const (
	StatePlacing    State = "placing"     // its first packet is being held
	StateAccepted   State = "accepted"    // its rate is promised on every link
	StateBestEffort State = "best-effort" // nothing is promised to it; Reason says why
	// StateOversubscribed is shown for an accepted flow that may not get its rate. Reason names the
	// link that has too little bandwidth.
	StateOversubscribed State = "oversubscribed"
)

// placement is a flow's state and path.
type placement struct {
	State  State         `json:"state"`
	Reason string        `json:"reason,omitempty"` // why the flow has only best effort
	Hops   []network.Hop `json:"hops"`
	// Undecided reports whether nothing is promised only because the traffic of a link was not
	// known. The flow then waits even if its definition says to decide once.
	Undecided bool `json:"undecided,omitempty"`
}

// stored is a flow as the store keeps it. The fields before placement never change.
type stored struct {
	Header     match.Header  `json:"header"`
	Definition string        `json:"definition"`
	Rate       uint64        `json:"rate"`
	Reverse    uint64        `json:"reverse"`
	Idle       time.Duration `json:"idle"`
	Once       bool          `json:"once,omitempty"`
	// HoldBack reports whether the definition sets the rate of the answers. The answers are then
	// limited to that rate, too.
	HoldBack bool            `json:"hold_back,omitempty"`
	From     network.PortRef `json:"from"`
	To       network.PortRef `json:"to"`
	// Device is the address of the flow's mobile host; the zero address if none is mobile. If it is
	// set, From and To are the ports where the flow was seen first.
	Device netip.Addr `json:"device,omitzero"`
	Since  time.Time  `json:"since"`
	// Number determines the numbers of the flow's meters.
	Number int `json:"number,omitempty"`

	placement
	Accepted time.Time `json:"accepted,omitzero"`
	Moves    int       `json:"moves"`
	// Unmetered reports for each direction whether no meter limits the accepted flow to its promise
	// there.
	Unmetered [directions]bool `json:"unmetered,omitzero"`
	// Meters holds the meters of links that a best-effort flow passes. It is set in the store only.
	Meters []guard.Stored `json:"meters,omitempty"`
}

// flow is a critical flow, from its first packet until it has been silent for its idle timeout.
// changing is locked while the flow's rules are changed. mu guards the fields after it, except
// those of stored that never change.
type flow struct {
	id string
	// ctx ends when the flow ends, or when its definition is changed or withdrawn.
	ctx      context.Context
	cancel   context.CancelFunc
	changing sync.Mutex

	mu sync.Mutex
	stored
	// waiting holds the packets that arrived while the flow was being placed.
	waiting []Held
	health  flowpath.Health
	// anchored reports whether a service has placed the flow's mobile host since the start.
	anchored bool
	// oversubscribed counts consecutive readings that have shown that a link cannot keep the
	// promise.
	oversubscribed int
	// pressure is the reason why the promise may not be kept, which an event has reported; "" if
	// there is none.
	pressure string
	counter  flowpath.Counter
	// excessReadings counts consecutive readings that have shown more traffic than was promised.
	// excess is the surplus, in bit/s. excessReported reports whether an event has reported it.
	excessReadings int
	excess         uint64
	excessReported bool
	// closed is a bit set of the sides that have closed the flow's TCP connection.
	closed uint8
	ended  bool
}

// identify returns the identifier of the flow with the given header.
func identify(h match.Header) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%v/%d/%v", h, h.VLAN, [2]openflow.MAC{h.EthSrc, h.EthDst})))
	return hex.EncodeToString(sum[:6])
}

// Owner is the owner of the flows' promises in the book, and of their rules in the ledger.
const Owner = "qos-bandwidth"

func (f *flow) promiseKey() reserve.Key { return reserve.Key{Owner: Owner, ID: f.id} }

// key returns the flow's key in the ledger.
func (f *flow) key() string { return "flow/" + f.id }

// isMobile reports whether one of the flow's hosts is mobile.
func (f *flow) isMobile() bool { return f.Device.IsValid() }

// isWithin reports whether the matches cover all packets of the flow.
func (f *flow) isWithin(matches []openflow.Match) bool {
	exact := f.Header.Match(f.From.Port)
	return slices.ContainsFunc(matches, func(m openflow.Match) bool { return m.Covers(exact) })
}

// flowStatus is the status of a flow: its placement, whether it has ended, and whether both sides
// have closed its connection. eager reports whether the flow should be accepted once capacity is
// available. waits reports whether it is waiting for that.
type flowStatus struct {
	placement
	ended, closed, eager, waits bool
}

// status returns the flow's status.
func (f *flow) status() flowStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	closed := f.closed == closedBoth
	eager := !closed && !(f.Once && f.Accepted.IsZero() && !f.Undecided)
	return flowStatus{f.placement, f.ended, closed, eager, f.State == StateBestEffort && eager}
}

// markEnded marks the flow as ended, and reports whether it had not ended before. f.changing is
// locked.
func (f *flow) markEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.ended
	f.ended = true
	return !was
}

// holdPacket holds a packet of a flow that is being placed, together with the flow's first packet.
func (f *flow) holdPacket(hold func() (Held, error)) network.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.State != StatePlacing || len(f.waiting) >= maxWaiting {
		return network.Continue
	}
	held, err := hold()
	if err != nil {
		return network.Continue
	}
	f.waiting = append(f.waiting, held)
	return network.Stop
}

// setPressure records the reason why the flow's promise may not be kept. It reports whether there
// was none before and the flow is accepted.
func (f *flow) setPressure(why string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.pressure
	f.pressure = why
	return was == "" && f.State == StateAccepted
}

// setRefusal records the reason why a waiting flow is not accepted now.
func (f *flow) setRefusal(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Reason, f.Undecided = why.Error(), undecided(why)
}

// guardedLinks returns the links on which the flow passes the guard's meters while it has only best
// effort.
func (f *flow) guardedLinks(hops []network.Hop) []network.PortRef {
	if f.isMobile() {
		return flowpath.LinkPorts(hops)
	}
	return flowpath.AllPorts(hops)
}

// setPlacement records a placement, and returns the packets that have waited for it.
// f.changing is locked.
func (f *flow) setPlacement(p placement) (waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.State == StateAccepted && f.State != StateAccepted {
		f.Accepted = time.Now()
	}
	switch {
	case f.State == StatePlacing:
		f.counter.At = time.Now() // the counters of its rules begin now
	case !slices.Equal(f.Hops, p.Hops):
		f.Moves++
	}
	waiting, f.waiting = f.waiting, nil
	f.placement = p
	f.health, f.oversubscribed, f.pressure = flowpath.Intact(), 0, ""
	f.excessReadings, f.excess, f.excessReported = 0, 0, false
	return waiting
}

// These bits are the sides of a TCP connection that have closed it.
const (
	closedForward = 1 << iota // the side that opened the connection
	closedReverse
	closedBoth = closedForward | closedReverse
)

// noteSegment records the flags of a TCP segment. there reports whether the segment came from the
// side that opened the connection. It returns the sides that had closed the connection before, and
// those that have closed it now.
func (f *flow) noteSegment(there bool, flags uint16) (before, now uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before = f.closed
	switch {
	case flags&packet.SYN != 0:
		if before == closedBoth {
			f.closed = 0
		}
	case flags&packet.RST != 0:
		f.closed = closedBoth
	case there:
		f.closed |= closedForward
	default:
		f.closed |= closedReverse
	}
	return before, f.closed
}

// countTraffic records a counter reading, and also the traffic beyond the promise once two
// consecutive readings have shown it. known reports whether the reading gives a rate. own is then
// the part of the rate, in bit/s, that belongs to the promise, because a meter passes no more.
// report tells whether the excess should be reported.
func (f *flow) countTraffic(bytes uint64, at time.Time) (own uint64, known, report bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rate, known := f.counter.Read(bytes, at)
	if !known {
		return 0, false, false
	}
	if f.State != StateAccepted || rate <= f.Rate+f.Rate*tolerance/100 {
		f.excessReadings, f.excess = 0, 0
		return rate, true, false
	}
	if f.excessReadings++; f.excessReadings >= pressureReadings {
		f.excess = rate - f.Rate
		report, f.excessReported = !f.excessReported, true
	}
	if f.Unmetered[forward] {
		return rate, true, report
	}
	return f.Rate, true, report
}

// maxWaiting bounds the packets of a flow that wait for its placement.
const maxWaiting = 32

// Held is a packet that waits for a decision, such as a *network.Held.
type Held interface {
	// Release sends the packet through its switch's flow table.
	Release() error
	// Forward releases the packet to default forwarding.
	Forward() error
}

// These are the directions of a flow.
const (
	forward = iota
	reverse
	directions
)

// undecided reports whether the reason why a flow was refused is only that the traffic of a link is
// not known yet.
func undecided(why error) bool {
	var short *reserve.Shortage
	return errors.As(why, &short) && short.Unknown
}
