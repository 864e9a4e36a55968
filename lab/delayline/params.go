package delayline

import (
	"errors"
	"fmt"
	"time"
)

// Params describes one direction of a link. The zero value is a wire without delay and loss.
type Params struct {
	// Rate is the serialisation rate in bit/s, counting Ethernet frames without
	// preamble and FCS. 0 means unlimited.
	Rate float64 `json:"rate,omitempty"`
	// Queue bounds the bytes that may wait for serialisation; frames beyond it are dropped at the
	// tail. 0 means the default that QueueLimit returns. Queue is ignored if Rate is 0.
	Queue int64 `json:"queue,omitempty"`
	// Delay is the propagation delay, one way.
	Delay time.Duration `json:"delay,omitempty"`
	// Jitter spreads the delay uniformly over Delay ± Jitter. Frames are never
	// reordered: a frame that would overtake another arrives with it.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Loss is the probability, 0 to 1, that a packet is lost. It applies to each MSS-sized packet,
	// also inside a super-packet.
	Loss float64 `json:"loss,omitempty"`
}

// These bound the parameters of a direction.
const (
	MaxRate  = 400e9
	MaxDelay = 10 * time.Second
	MaxQueue = 1 << 30
	minQueue = 96 << 10
)

// Validate returns an error that names the first parameter that is out of range.
func (p Params) Validate() error {
	switch {
	case !(p.Rate >= 0 && p.Rate <= MaxRate):
		return fmt.Errorf("rate %g bit/s is not between 0 and %g", p.Rate, float64(MaxRate))
	case p.Rate > 0 && p.Rate < 1000:
		return fmt.Errorf("rate %g bit/s is below 1 kbit/s; write a unit, as in 100Mbit", p.Rate)
	case p.Queue < 0 || p.Queue > MaxQueue:
		return fmt.Errorf("queue %d bytes is not between 0 and %d", p.Queue, MaxQueue)
	case p.Delay < 0 || p.Delay > MaxDelay:
		return fmt.Errorf("delay %v is not between 0 and %v", p.Delay, MaxDelay)
	case p.Jitter < 0 || p.Jitter > MaxDelay:
		return fmt.Errorf("jitter %v is not between 0 and %v", p.Jitter, MaxDelay)
	case p.Jitter > p.Delay:
		return fmt.Errorf("jitter %v is more than the delay %v", p.Jitter, p.Delay)
	case !(p.Loss >= 0 && p.Loss <= 1):
		return errors.New("loss is not between 0 and 100 %")
	}
	return nil
}

// IsZero reports whether the line is a plain wire.
func (p Params) IsZero() bool { return p == Params{} }

// QueueLimit returns the bytes that the queue may hold: Queue, or if that is 0, one bandwidth-delay
// product of the round trip, and at least 20 ms of the rate.
func (p Params) QueueLimit() int64 {
	if p.Queue > 0 {
		return p.Queue
	}
	round := 2 * p.Delay
	if round < 20*time.Millisecond {
		round = 20 * time.Millisecond
	}
	bytes := int64(p.Rate / 8 * round.Seconds())
	return min(max(bytes, minQueue), MaxQueue)
}

// Stats holds the counters of one direction since it started.
type Stats struct {
	// Received counts packets from the sending end, and Delivered those written to the receiving
	// end. Packets are MSS-sized packets as on a wire.
	ReceivedPackets  uint64 `json:"received_packets"`
	ReceivedBytes    uint64 `json:"received_bytes"`
	DeliveredPackets uint64 `json:"delivered_packets"`
	DeliveredBytes   uint64 `json:"delivered_bytes"`
	// Lost counts packets that were lost at random with the probability Params.Loss, and Dropped
	// those that found the queue full. Failed counts packets that were malformed, that could not be
	// written because the receiving interface was down, or that were in flight when the cable was
	// plugged out.
	Lost    uint64 `json:"lost"`
	Dropped uint64 `json:"dropped"`
	Failed  uint64 `json:"failed"`
	// QueueBytes is the number of bytes that wait for serialisation now, and QueueMax the largest
	// such number.
	QueueBytes int64 `json:"queue_bytes"`
	QueueMax   int64 `json:"queue_max"`
	// QueueSeconds is the sum of the times that delivered packets have waited in the queue. Divided
	// by DeliveredPackets it is the mean queueing delay.
	QueueSeconds float64 `json:"queue_seconds"`
	// FlightBytes is the number of bytes that the line holds, in its queue and on the way.
	FlightBytes int64 `json:"flight_bytes"`
	// LateMax and LateMean are the largest and the mean time by which deliveries were late.
	LateMax  time.Duration `json:"late_max"`
	LateMean time.Duration `json:"late_mean"`
}
