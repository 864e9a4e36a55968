package ingress

import (
	"bytes"
	"time"

	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// maxHold bounds how long a packet of sound is held, and maxHeld how many are held.
	maxHold = 60 * time.Millisecond
	maxHeld = 16
	// settleStep is how much the delay of packets is reduced with each packet.
	settleStep = 20 * time.Microsecond
	// clockJump is the deviation at which a packet counts as one of another clock.
	clockJump = 200 * time.Millisecond
)

// pacer smooths packets of sound that arrive in clumps, as ffmpeg sends them. It releases each
// packet as long after the previous one as it is to be heard. Without it, players would buffer
// sound for as long as it may be late, and play another channel's sound by that much later.
type pacer struct {
	begun bool
	epoch time.Time
	stamp uint32        // timestamp of the last packet
	clock time.Duration // the last timestamp as a time since epoch
	late  time.Duration // by how much the latest packets lag behind that clock
	held  []heldPacket
}

type heldPacket struct {
	raw []byte
	due time.Time
}

// add holds a packet until it is due.
func (c *pacer) add(p media.Packet, raw []byte, now time.Time) {
	if !c.begun {
		c.begun, c.epoch, c.stamp = true, now, p.Timestamp
	}
	c.clock += time.Duration(int32(p.Timestamp-c.stamp)) * time.Second / media.AudioClock
	c.stamp = p.Timestamp
	late := now.Sub(c.epoch) - c.clock
	switch off := late - c.late; {
	case off > 0, off < -clockJump:
		c.late = late
	default:
		c.late = min(c.late-settleStep, late+maxHold)
		c.late = max(c.late, late)
	}
	due := c.epoch.Add(c.clock + c.late)
	if n := len(c.held); n > 0 && due.Before(c.held[n-1].due) || n >= maxHeld {
		due = now // another clock, or too many packets: release all
		for i := range c.held {
			c.held[i].due = now
		}
	}
	c.held = append(c.held, heldPacket{bytes.Clone(raw), due})
}

// due returns when the next packet is due, or other if that is earlier or none is held.
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
