package bandwidth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/guard"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

// State is where a flow stands.
type State string

// The states of a flow.
const (
	StatePlacing    State = "placing"     // its first packet is being held
	StateAccepted   State = "accepted"    // it is promised its rate on every link
	StateBestEffort State = "best-effort" // it is promised nothing; Reason says why
	// StateOversubscribed is shown of an accepted flow that may not have its rate: Reason says
	// which link has too little.
	StateOversubscribed State = "oversubscribed"
)

// placement is where a flow goes, and with what.
type placement struct {
	State  State         `json:"state"`
	Reason string        `json:"reason,omitempty"` // of best effort
	Hops   []network.Hop `json:"hops"`
	// Undecided is true if nothing is promised to it only because it was not known what a link
	// carries: it waits also if its definition says to decide once.
	Undecided bool `json:"undecided,omitempty"`
}

// stored is a flow as the store keeps it. What stands before placement is fixed.
type stored struct {
	Header     match.Header  `json:"header"`
	Definition string        `json:"definition"`
	Rate       uint64        `json:"rate"`
	Reverse    uint64        `json:"reverse"`
	Idle       time.Duration `json:"idle"`
	Once       bool          `json:"once,omitempty"`
	// HoldBack says that its definition says how much its answers are, so that they are
	// held to that, too.
	HoldBack bool            `json:"hold_back,omitempty"`
	From     network.PortRef `json:"from"`
	To       network.PortRef `json:"to"`
	// Device is the one of its hosts that moves, the zero address if none does; From and
	// To are then where it was seen first.
	Device netip.Addr `json:"device,omitzero"`
	Since  time.Time  `json:"since"`
	// Number is that of its meters.
	Number int `json:"number,omitempty"`

	placement
	Accepted time.Time `json:"accepted,omitzero"`
	Moves    int       `json:"moves"`
	// Unmetered are the directions in which no meter holds an accepted flow to its promise.
	Unmetered [directions]bool `json:"unmetered,omitzero"`
	// Meters are what the flow passed, if it is one of best effort, in the store alone.
	Meters []guard.Stored `json:"meters,omitempty"`
}

// flow is a critical flow from its first packet until it has been silent. Whoever changes
// its rules holds changing; mu guards what is not fixed.
type flow struct {
	id string
	// ctx ends when the flow's definition is withdrawn.
	ctx      context.Context
	cancel   context.CancelFunc
	changing sync.Mutex

	mu sync.Mutex
	stored
	// waiting are packets that came while the flow was being placed.
	waiting []Held
	health  way.Health
	// led says that its host has been led since the start.
	led bool
	// oversubscribed counts readings in a row that show the promise endangered.
	oversubscribed int
	// pressure is what endangers the promise; an event has told it.
	pressure string
	counter  way.Counter
	// over counts readings in a row that show more than was promised, excess is how much
	// more that is, told says that an event has said so.
	over   int
	excess uint64
	told   bool
	// closed are the sides that have ended the flow's TCP connection.
	closed uint8
	ended  bool
}

// identify gives a header its short name.
func identify(h match.Header) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%v/%d/%v", h, h.VLAN, [2]openflow.MAC{h.EthSrc, h.EthDst})))
	return hex.EncodeToString(sum[:6])
}

// Owner is the name under which flows' promises stand in the book, and their rules in
// the ledger.
const Owner = "qos-bandwidth"

func (f *flow) promise() reserve.Key { return reserve.Key{Owner: Owner, ID: f.id} }

// key is the flow's name in the ledger.
func (f *flow) key() string { return "flow/" + f.id }

// roams says whether one of the flow's hosts moves.
func (f *flow) roams() bool { return f.Device.IsValid() }

// within says whether all packets of the flow are among some.
func (f *flow) within(matches []openflow.Match) bool {
	exact := f.Header.Match(f.From.Port)
	return slices.ContainsFunc(matches, func(m openflow.Match) bool { return m.Covers(exact) })
}

// standing is where a flow stands: whether it has ended, whether both sides have closed its
// connection, whether it is to be accepted when there is room for it if it is not now, and
// whether it waits for that.
type standing struct {
	placement
	ended, closed, eager, waits bool
}

// now returns where the flow stands.
func (f *flow) now() standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	closed := f.closed == closedBoth
	eager := !closed && !(f.Once && f.Accepted.IsZero() && !f.Undecided)
	return standing{f.placement, f.ended, closed, eager, f.State == StateBestEffort && eager}
}

// end says whether the flow ends now. f.changing is locked.
func (f *flow) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.ended
	f.ended = true
	return !was
}

// join lets a packet wait with the first one of its flow.
func (f *flow) join(hold func() (Held, error)) network.Verdict {
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

// press notes what endangers the flow's promise, and reports whether nothing did before.
func (f *flow) press(why string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.pressure
	f.pressure = why
	return was == "" && f.State == StateAccepted
}

// refused notes why a flow that waits is not accepted now.
func (f *flow) refused(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Reason, f.Undecided = why.Error(), undecided(why)
}

// guarded returns the links on which the flow passes the meters of best effort.
func (f *flow) guarded(hops []network.Hop) []network.PortRef {
	if f.roams() {
		return way.Ports(hops)
	}
	return way.Outs(hops)
}

// enter notes a placement, and returns the packets that have waited for it. f.changing is
// locked.
func (f *flow) enter(p placement) (waiting []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.State == StateAccepted && f.State != StateAccepted {
		f.Accepted = time.Now()
	}
	switch {
	case f.State == StatePlacing:
		f.counter.At = time.Now() // its rules count from now
	case !slices.Equal(f.Hops, p.Hops):
		f.Moves++
	}
	waiting, f.waiting = f.waiting, nil
	f.placement = p
	f.health, f.oversubscribed, f.pressure = way.Whole(), 0, ""
	f.over, f.excess, f.told = 0, 0, false
	return waiting
}

// Sides of a TCP connection that have said that they send no more.
const (
	closedThere = 1 << iota // who began it
	closedBack
	closedBoth = closedThere | closedBack
)

// note notes what a segment says of its connection, and tells which sides had ended it
// before, and have now.
func (f *flow) note(there bool, flags uint16) (before, now uint8) {
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
		f.closed |= closedThere
	default:
		f.closed |= closedBack
	}
	return before, f.closed
}

// read notes what has been counted of the flow, and what it sends beyond its promise once two
// readings have shown it. It returns the part of its rate that is the promise's, if the rate
// is known now: a meter lets no more through; and whether the excess is to be told.
func (f *flow) read(bytes uint64, at time.Time) (own uint64, known, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rate, known := f.counter.Read(bytes, at)
	if !known {
		return 0, false, false
	}
	if f.State != StateAccepted || rate <= f.Rate+f.Rate*tolerance/100 {
		f.over, f.excess = 0, 0
		return rate, true, false
	}
	if f.over++; f.over >= pressedFor {
		f.excess = rate - f.Rate
		tell, f.told = !f.told, true
	}
	if f.Unmetered[there] {
		return rate, true, tell
	}
	return f.Rate, true, tell
}
