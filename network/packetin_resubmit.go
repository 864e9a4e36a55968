package network

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// ErrResubmitted says that the tables go on sending a packet up that has been sent
// through them again and again: no rule for it is there.
var ErrResubmitted = errors.New("the switch's tables have sent the packet up again")

const (
	// resubmitMemory is how many packets a switch's session remembers as resubmitted.
	resubmitMemory = 1024
	// maxResubmits is how often the same bytes are sent through the tables within
	// resubmitWindow: senders repeat packets, but a packet without a rule comes up
	// as often as it is sent.
	maxResubmits   = 64
	resubmitWindow = 500 * time.Millisecond
)

// resubmitCounter are the packets that were lately sent through a switch's tables
// again. It belongs to the switch's reader goroutine, and its size is fixed.
type resubmitCounter struct {
	seed  maphash.Seed
	slots [resubmitMemory]struct {
		sum   uint64
		since time.Time
		times int
	}
}

// allow counts a packet, and is false if it has been counted too often within the
// window. Of two packets that share a slot the later is remembered.
func (r *resubmitCounter) allow(port uint32, data []byte, now time.Time) bool {
	sum := maphash.Bytes(r.seed, data) ^ uint64(port)
	slot := &r.slots[sum%resubmitMemory]
	if slot.sum != sum || now.Sub(slot.since) >= resubmitWindow {
		slot.sum, slot.since, slot.times = sum, now, 0
	}
	slot.times++
	return slot.times <= maxResubmits
}

// Resubmit sends the packet through the switch's flow tables again, as if it had
// just come in by its port. It is for packets that a rule sent up which a later
// rule has overruled: a switch that goes by cached decisions may use the old one
// for a while after it has confirmed the new, but what comes from the controller
// it looks up anew. If the tables send the packet up again and again, the error is
// ErrResubmitted, and it goes nowhere. It may be called only in a handler, on the
// switch's own goroutine, and never waits.
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

// Output has the switch do the actions with the packet, as if it had just come in by
// its port. A checksum that its sender has left to a card is finished first: a virtual
// switch sends such packets up as they are, and nobody finishes them when they come
// back. It never waits.
func (p *PacketIn) Output(actions []openflow.Action) error {
	packet.CompleteChecksum(p.Data, &p.Headers)
	return p.Switch.PacketOut(p.InPort, actions, p.Data)
}
