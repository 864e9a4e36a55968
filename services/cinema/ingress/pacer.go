package ingress

import (
	"bytes"
	"time"

	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// maxHold bounds how long a packet of sound is held, and maxHeld how many are held. ffmpeg's
	// muxer for MPEG-TS collects up to 0.7 s of sound.
	maxHold = time.Second
	maxHeld = 64
	// slack is by how much the delay of packets may exceed the delay that the last clumps needed
	// before it is reduced by fastStep per packet. (A clump is a group of packets that arrive at
	// once.)
	slack = 60 * time.Millisecond
	// settleStep is by how much the delay is reduced with each packet if it exceeds the needed
	// delay, and fastStep by how much if it exceeds that by more than slack.
	settleStep, fastStep = 20 * time.Microsecond, 400 * time.Microsecond
	// clockJump is the largest change of a packet's lag after which its timestamp still counts as
	// from the same clock.
	clockJump = maxHold + 200*time.Millisecond
	// peakTime is the least time for which the delay that a clump needed is remembered.
	peakTime = 2 * time.Second
	// maxSkew is how much later than its picture sound may leave; people do not notice that
	// (EBU R37).
	maxSkew = 60 * time.Millisecond
	// maxPictures bounds the pictures that are held, in bytes.
	maxPictures = 4 << 20
)

// pacer smooths packets of sound that arrive in clumps, as ffmpeg sends them, and as they are in
// transport streams. It releases packets at the intervals at which they are to be heard. Without it,
// players would buffer sound for as long as it may be late, and would play the sound of another
// channel later by the same time.
type pacer struct {
	begun bool
	epoch time.Time
	stamp uint32        // timestamp of the last packet
	clock time.Duration // the last timestamp as a time since epoch
	late  time.Duration // delay of packets: how long after their time by clock they are released
	held  []heldPacket
	lags  peak // how far packets have lagged behind the clock
	holds peak // for how long packets have been held
}

// peak is the maximum of the durations that were added within the last peakTime, or up to twice as
// long.
type peak struct {
	last, now time.Duration
	since     time.Time
}

func (p *peak) add(d time.Duration, now time.Time) {
	if now.Sub(p.since) >= peakTime {
		p.last, p.now, p.since = p.now, d, now
	}
	p.now = max(p.now, d)
}

// max returns the maximum, or 0 if nothing was added for twice peakTime.
func (p *peak) max(now time.Time) time.Duration {
	if now.Sub(p.since) >= 2*peakTime {
		return 0
	}
	return max(p.last, p.now)
}

type heldPacket struct {
	raw []byte
	due time.Time
}

// add computes when a packet is due, and holds a copy of it until then.
func (c *pacer) add(p media.Packet, raw []byte, now time.Time) {
	if !c.begun {
		c.begun, c.epoch, c.stamp = true, now, p.Timestamp
	}
	c.clock += time.Duration(int32(p.Timestamp-c.stamp)) * time.Second / media.AudioClock
	c.stamp = p.Timestamp
	late := now.Sub(c.epoch) - c.clock
	off := late - c.late
	if off > clockJump || off < -clockJump {
		c.late, c.lags = late, peak{last: late, now: late, since: now}
	}
	c.lags.add(late, now)
	switch {
	case off > 0:
		c.late = late
	case c.late > c.lags.max(now)+slack:
		c.late -= fastStep
	default:
		c.late = max(c.late-settleStep, c.lags.max(now))
	}
	due := c.epoch.Add(c.clock + c.late)
	if n := len(c.held); n > 0 && due.Before(c.held[n-1].due) || n >= maxHeld {
		due = now // the clock has jumped, or too many packets are held: release all
		for i := range c.held {
			c.held[i].due = now
		}
	}
	c.holds.add(due.Sub(now), now)
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

// delay returns for how long pictures are to be held, so that they leave at most maxSkew before the
// sound that was recorded with them. The last packet of a clump was recorded together with the picture
// that arrives with the clump, and is held the longest.
func (c *pacer) delay(now time.Time) time.Duration { return max(c.holds.max(now)-maxSkew, 0) }

// pictureLine delays packets of pictures, and keeps their order.
type pictureLine struct {
	held  []heldPacket
	bytes int
}

// add holds a copy of a packet for the given time, or longer if the packet before it is held longer.
func (l *pictureLine) add(raw []byte, now time.Time, delay time.Duration) {
	due := now.Add(delay)
	if n := len(l.held); n > 0 && due.Before(l.held[n-1].due) {
		due = l.held[n-1].due
	}
	l.held = append(l.held, heldPacket{bytes.Clone(raw), due})
	l.bytes += len(raw)
}

// due returns when the next packet is due, or other if that is earlier or none is held.
func (l *pictureLine) due(other time.Time) time.Time {
	if len(l.held) > 0 && l.held[0].due.Before(other) {
		return l.held[0].due
	}
	return other
}

// release returns the packets that are due, and the oldest ones as long as more than maxPictures bytes
// are held.
func (l *pictureLine) release(now time.Time) (raw [][]byte) {
	for len(l.held) > 0 && (!l.held[0].due.After(now) || l.bytes > maxPictures) {
		raw = append(raw, l.held[0].raw)
		l.bytes -= len(l.held[0].raw)
		l.held = l.held[1:]
	}
	return raw
}
