package network

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// ErrResubmitted is returned for a packet that the switch's tables keep sending to the controller
// although it is resubmitted: they have no rule for it.
var ErrResubmitted = errors.New("the switch's tables have sent the packet up again")

const (
	// resubmitMemory is the number of resubmitted packets that a session remembers.
	resubmitMemory = 1024
	// maxResubmits is how often the same bytes may be resubmitted within resubmitWindow. Senders
	// repeat packets, so it is more than one; a packet without a rule comes back each time it is
	// sent.
	maxResubmits   = 64
	resubmitWindow = 500 * time.Millisecond
)

// resubmitCounter counts the packets that were recently sent through a switch's tables again. Only
// the switch's reader goroutine uses it. Its size is fixed.
type resubmitCounter struct {
	seed  maphash.Seed
	slots [resubmitMemory]struct {
		sum   uint64
		since time.Time
		times int
	}
}

// allow counts a packet and reports whether it may be resubmitted. Two packets may share a slot;
// the later one then replaces the earlier.
func (r *resubmitCounter) allow(port uint32, data []byte, now time.Time) bool {
	sum := maphash.Bytes(r.seed, data) ^ uint64(port)
	slot := &r.slots[sum%resubmitMemory]
	if slot.sum != sum || now.Sub(slot.since) >= resubmitWindow {
		slot.sum, slot.since, slot.times = sum, now, 0
	}
	slot.times++
	return slot.times <= maxResubmits
}

// Resubmit sends the packet through the switch's flow tables again, as if it had just arrived at
// its port. It is meant for packets that reached the controller by an old rule although a newer rule
// comes first for them. A switch that caches decisions may use the old rule for a while after it has
// confirmed the new one, but it looks up packets from the controller anew. If the tables keep sending the
// packet to the controller, Resubmit returns ErrResubmitted and drops the packet. It never waits.
// Only handlers may call it, on the switch's own goroutine.
func (p *PacketIn) Resubmit() error {
	s := p.Switch
	if s.resubmitted == nil {
		s.resubmitted = &resubmitCounter{seed: maphash.MakeSeed()}
	}
	if !s.resubmitted.allow(p.InPort, p.Data, p.At) {
		return fmt.Errorf("switch %v, port %d: %w", s.dpid, p.InPort, ErrResubmitted)
	}
	return p.Output([]openflow.Action{openflow.Output(openflow.PortTable)})
}

// Output makes the switch apply the actions to the packet as if it had just arrived at its port.
// It first completes a checksum that the sender left to its network card: a virtual switch sends
// such packets to the controller unfinished, and nothing finishes them when they return. Output
// never waits.
func (p *PacketIn) Output(actions []openflow.Action) error {
	packet.CompleteChecksum(p.Data, &p.Headers)
	return p.Switch.PacketOut(p.InPort, actions, p.Data)
}
