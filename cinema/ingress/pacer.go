package ingress

import (
	"bytes"
	"time"

	"github.com/sluice-net/sluice/cinema/media"
)

const (
	// maxHold is how long a packet of sound is held at most, maxHeld how many are.
	maxHold = 60 * time.Millisecond
	maxHeld = 16
	// settles is how much less packets are held for each that comes.
	settles = 20 * time.Microsecond
	// anew is from how far off on a packet is of another clock.
	anew = 200 * time.Millisecond
)

// pacer holds packets of sound that come in clumps, as ffmpeg sends them, until each has its
// time: as much after the last one as it is to be heard. Players keep sound back for as long as
// it may come late, and another channel would be heard by so much later.
type pacer struct {
	begun bool
	epoch time.Time
	stamp uint32        // of the last packet
	clock time.Duration // that of the last packet's timestamp
	late  time.Duration // of packets behind that clock: of those that come latest
	held  []heldPacket
}

type heldPacket struct {
	raw []byte
	due time.Time
}

// add holds a packet.
func (c *pacer) add(p media.Packet, raw []byte, now time.Time) {
	if !c.begun {
		c.begun, c.epoch, c.stamp = true, now, p.Timestamp
	}
	c.clock += time.Duration(int32(p.Timestamp-c.stamp)) * time.Second / media.AudioClock
	c.stamp = p.Timestamp
	late := now.Sub(c.epoch) - c.clock
	switch off := late - c.late; {
	case off > 0, off < -anew:
		c.late = late
	default:
		c.late = min(c.late-settles, late+maxHold)
		c.late = max(c.late, late)
	}
	due := c.epoch.Add(c.clock + c.late)
	if n := len(c.held); n > 0 && due.Before(c.held[n-1].due) || n >= maxHeld {
		due = now // of another clock, or too many: all go
		for i := range c.held {
			c.held[i].due = now
		}
	}
	c.held = append(c.held, heldPacket{bytes.Clone(raw), due})
}

// due is when the next packet is; none is held: at the other time.
func (c *pacer) due(other time.Time) time.Time {
	if len(c.held) > 0 && c.held[0].due.Before(other) {
		return c.held[0].due
	}
	return other
}

// release returns the packets that are due.
func (c *pacer) release(now time.Time) (raw [][]byte) {
	for len(c.held) > 0 && !c.held[0].due.After(now) {
		raw = append(raw, c.held[0].raw)
		c.held = c.held[1:]
	}
	return raw
}
