package bandwidth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// State is where a flow stands.
type State string

// The states of a flow.
const (
	StatePlacing    State = "placing"     // its first packet is being held
	StateAccepted   State = "accepted"    // it is promised its rate on every link
	StateBestEffort State = "best-effort" // it is promised nothing; Reason says why
)

// flow is a critical flow from its first packet until it has been silent. What stands
// before changing is fixed; what changing guards belongs to whoever changes the flow's
// rules; the rest to the service's lock.
type flow struct {
	id         string
	header     header
	definition string
	rate       uint64
	reverse    uint64
	idle       time.Duration
	once       bool
	// holdBack says that its definition says how much its answers are, so that they are
	// held to that, too.
	holdBack bool
	// number is that of its meters.
	number   int
	from, to network.PortRef
	// device is the one of its hosts that moves, the zero address if none does; from and
	// to are then where it was seen first.
	device netip.Addr
	since  time.Time
	// ctx ends when the flow's definition is withdrawn.
	ctx    context.Context
	cancel context.CancelFunc

	changing sync.Mutex

	state    State
	reason   string
	path     network.Path
	accepted time.Time
	moves    int
	// waiting are packets that came while the flow was being placed.
	waiting []Held
	// whole says that every link of the path has been seen since the start, broken
	// since when one is missing.
	whole  bool
	broken time.Time
	// led says that its host has been led since the start.
	led bool
	// oversubscribed counts readings in a row that show the promise endangered.
	oversubscribed int
	// pressure is what endangers the promise, if it has been told.
	pressure string
	counter  counter
	// unmetered are the directions in which no meter holds an accepted flow to its promise.
	unmetered [directions]bool
	// over counts readings in a row that show more than was promised, excess is how much
	// more that is, told says that an event has said so.
	over   int
	excess uint64
	told   bool
	// closed are the sides that have ended the flow's TCP connection.
	closed uint8
	ended  bool
}

// counter is what a flow has carried, as the switch where it enters counts.
type counter struct {
	bytes uint64
	at    time.Time
	rate  uint64
}

// read takes a reading and tells the rate since the one before; false without one.
func (c *counter) read(bytes uint64, at time.Time) (uint64, bool) {
	old := *c
	if !at.After(old.at) {
		return 0, false
	}
	c.bytes, c.at, c.rate = bytes, at, 0
	if old.at.IsZero() || bytes < old.bytes {
		return 0, false
	}
	c.rate = uint64(float64(bytes-old.bytes) * 8 / at.Sub(old.at).Seconds())
	return c.rate, true
}

// identify gives a header its short name.
func identify(h header) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%v/%d/%v", h, h.VLAN, [2]openflow.MAC{h.EthSrc, h.EthDst})))
	return hex.EncodeToString(sum[:6])
}

// Owner is the name under which flows' promises stand in the book, and their rules in
// the ledger.
const Owner = "qos-bandwidth"

func (f *flow) promise() reserve.Key { return reserve.Key{Owner: Owner, ID: f.id} }

// key is the flow's name in the ledger.
func (f *flow) key() string { return "flow/" + f.id }

// Hop is one switch of a flow's path.
type Hop struct {
	Switch openflow.DatapathID `json:"switch"`
	In     uint32              `json:"in" doc:"Port by which its packets come in"`
	Out    uint32              `json:"out" doc:"Port by which they leave"`
}

// Record is what is told of a flow.
type Record struct {
	ID         string    `json:"id"`
	Definition string    `json:"definition" doc:"The critical traffic that it belongs to"`
	Flow       string    `json:"flow" example:"tcp 10.0.0.1:40000 > 10.0.0.2:5001"`
	State      State     `json:"state" enum:"placing,accepted,best-effort" doc:"accepted: it is promised its rate. best-effort: it is not; reason says why"`
	Reason     string    `json:"reason,omitempty" doc:"Why nothing is promised to it; or, of an accepted flow, what is wrong"`
	Rate       uint64    `json:"rate_bits_per_second" doc:"What it requires"`
	Reverse    uint64    `json:"reverse_rate_bits_per_second" doc:"What it requires in the reverse direction"`
	Throughput uint64    `json:"sent_bits_per_second" doc:"What it sent at the last reading of its counters"`
	Excess     uint64    `json:"excess_bits_per_second,omitempty" doc:"The part of it that is more than the flow was promised: its first switch drops it, unless reason says otherwise"`
	Bytes      uint64    `json:"bytes" doc:"What it has sent"`
	Path       []Hop     `json:"path"`
	Since      time.Time `json:"since"`
	Accepted   time.Time `json:"accepted,omitzero" doc:"When it was accepted"`
	Moves      int       `json:"moves" doc:"How often it was given another path"`
	Closed     bool      `json:"closed,omitempty" doc:"Both sides have ended its connection: nothing is promised to it any more"`
}

// record tells of the flow. The lock is held.
func (f *flow) record() Record {
	r := Record{
		ID: f.id, Definition: f.definition, Flow: f.header.String(), State: f.state, Reason: f.reason, Rate: f.rate, Reverse: f.reverse,
		Throughput: f.counter.rate, Bytes: f.counter.bytes, Since: f.since, Accepted: f.accepted, Moves: f.moves, Path: []Hop{}, Closed: f.closed == closedBoth,
		Excess: f.excess,
	}
	if f.state == StateAccepted {
		r.Reason = f.complaint()
	}
	for _, h := range f.path.Hops {
		r.Path = append(r.Path, Hop(h))
	}
	return r
}

// Flows lists the flows, those first that came first.
func (s *Service) Flows() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		all = append(all, f)
	}
	sortFlows(all)
	out := make([]Record, len(all))
	for i, f := range all {
		out[i] = f.record()
	}
	return out
}
