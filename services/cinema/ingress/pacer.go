package ingress

import (
	"bytes"
	"time"

	"github.com/pion/rtcp"

	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// maxHold bounds how long a packet is held, and maxHeld how many packets of sound are held.
	// ffmpeg's muxer for MPEG-TS collects up to 0.7 s of sound.
	maxHold = time.Second
	maxHeld = 64
	// slack is the time by which the delay of sound may exceed what the last clumps needed. Beyond
	// that, it is reduced by fastStep per packet. (A clump is a group of packets that arrive at
	// once.)
	slack = 60 * time.Millisecond
	// settleStep is by how much the delay is reduced with each packet if it exceeds the needed
	// delay, and fastStep by how much if it exceeds that by more than slack. If it exceeds that by
	// more than maxExcess, it is reduced at once.
	settleStep, fastStep = 20 * time.Microsecond, 400 * time.Microsecond
	maxExcess            = 250 * time.Millisecond
	// clockJump is the largest change of a packet's lag after which its timestamp still counts as
	// from the same clock.
	clockJump = maxHold + 200*time.Millisecond
	// peakTime is the least time for which the delay that a clump needed is remembered.
	peakTime = 2 * time.Second
	// maxSkew is how much later than its picture sound may leave. People detect sound that is later
	// than its picture by more than that (ITU-R BT.1359).
	maxSkew = 125 * time.Millisecond
	// maxPictures bounds the pictures that are held, in bytes.
	maxPictures = 4 << 20
	// maxClocks bounds the clocks of streams that are remembered.
	maxClocks = 8
)

// pacer smooths what an ffmpeg sends. Sound, which arrives in clumps because ffmpeg sends it so, and
// because transport streams have it in long packets, leaves at the intervals at which it is to be
// heard. Without that, players would buffer sound for as long as it may be late, and would play the
// sound of another channel later by the same time.
//
// Pictures leave at once, unless the sound that was recorded with them arrives more than maxSkew after
// them again and again, and not only once, as when a process starts. Which sound that is, the sender
// reports tell.
type pacer struct {
	sound    soundLine
	pictures pictureLine
	clocks   map[uint32]streamClock // by SSRC
	picture  media.Packet           // the last one
	behind   peak                   // how much later than its picture sound arrives
}

// add adds a packet. Packets that need not wait are due at once.
func (c *pacer) add(p media.Packet, raw []byte, now time.Time) {
	switch {
	case p.Control:
		c.readReports(raw)
		c.pictures.add(raw, now)
	case p.Audio():
		c.compare(p, now)
		c.sound.add(p, raw, now)
	default:
		c.picture = p
		c.picture.Payload = nil
		c.pictures.add(raw, now.Add(max(min(c.behind.steady(now), maxHold)-maxSkew, 0)))
	}
}

// readReports remembers the clocks of streams that RTCP packets tell.
func (c *pacer) readReports(raw []byte) {
	packets, err := rtcp.Unmarshal(raw)
	if err != nil {
		return
	}
	for _, p := range packets {
		if sr, ok := p.(*rtcp.SenderReport); ok {
			if c.clocks == nil || len(c.clocks) >= maxClocks {
				c.clocks = map[uint32]streamClock{}
			}
			c.clocks[sr.SSRC] = streamClock{fromNTP(sr.NTPTime), sr.RTPTime}
		}
	}
}

// compare compares a packet of sound with the last picture: how much earlier it was recorded. A sender
// that stalls, or a busy machine, delays both, and so makes no difference.
func (c *pacer) compare(p media.Packet, now time.Time) {
	pictures, known := c.clocks[c.picture.SSRC]
	sound, alsoKnown := c.clocks[p.SSRC]
	if !known || !alsoKnown {
		return
	}
	behind := pictures.at(c.picture.Timestamp, media.VideoClock).Sub(sound.at(p.Timestamp, media.AudioClock))
	c.behind.add(behind, now)
}

// due returns when the next packet is due, or other if that is earlier or none is held.
func (c *pacer) due(other time.Time) time.Time { return c.pictures.due(c.sound.due(other)) }

// release returns the packets that are due.
func (c *pacer) release(now time.Time) [][]byte {
	return append(c.sound.release(now), c.pictures.release(now)...)
}

// streamClock says which timestamp of a stream belongs to which time of its sender.
type streamClock struct {
	time  time.Time
	stamp uint32
}

// at returns the time that belongs to a timestamp. rate is the clock rate of timestamps, in Hz.
func (c streamClock) at(stamp uint32, rate int64) time.Time {
	return c.time.Add(time.Duration(int32(stamp-c.stamp)) * time.Second / time.Duration(rate))
}

// fromNTP converts a timestamp of NTP (RFC 3550, section 4).
func fromNTP(ntp uint64) time.Time {
	const since1900 = 2208988800 // seconds from 1900 to 1970
	return time.Unix(int64(ntp>>32)-since1900, int64(ntp&0xffffffff*uint64(time.Second)>>32))
}

// soundLine holds packets of sound until they are due.
type soundLine struct {
	begun bool
	epoch time.Time
	stamp uint32        // timestamp of the last packet
	clock time.Duration // the last timestamp as a time since epoch
	late  time.Duration // delay of packets: how long after their time by clock they are released
	held  []heldPacket
	lags  peak // how far packets have lagged behind the clock
}

// peak is the maximum of the durations that were added within periods of peakTime or longer: the present
// one, the last one and the one before.
type peak struct {
	before, last, now time.Duration
	since             time.Time // when the present period began
}

func (p *peak) add(d time.Duration, now time.Time) {
	if now.Sub(p.since) >= peakTime {
		p.before, p.last, p.now, p.since = p.last, p.now, d, now
	}
	p.now = max(p.now, d)
}

// max returns the maximum of the present period and the last one, or 0 if nothing was added for twice
// peakTime.
func (p *peak) max(now time.Time) time.Duration {
	if now.Sub(p.since) >= 2*peakTime {
		return 0
	}
	return max(p.last, p.now)
}

// steady returns what both of the last two periods have reached, or 0 if nothing was added for twice
// peakTime.
func (p *peak) steady(now time.Time) time.Duration {
	if now.Sub(p.since) >= 2*peakTime {
		return 0
	}
	return min(p.before, p.last)
}

type heldPacket struct {
	raw []byte
	due time.Time
}

// add computes when a packet is due, and holds a copy of it until then.
func (c *soundLine) add(p media.Packet, raw []byte, now time.Time) {
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
	case c.late > c.lags.max(now)+maxExcess:
		c.late = c.lags.max(now)
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
	c.held = append(c.held, heldPacket{bytes.Clone(raw), due})
}

// due returns when the next packet is due, or other if that is earlier or none is held.
func (c *soundLine) due(other time.Time) time.Time {
	if len(c.held) > 0 && c.held[0].due.Before(other) {
		return c.held[0].due
	}
	return other
}

// release returns the packets that are due.
func (c *soundLine) release(now time.Time) (raw [][]byte) {
	for len(c.held) > 0 && !c.held[0].due.After(now) {
		raw = append(raw, c.held[0].raw)
		c.held = c.held[1:]
	}
	return raw
}

// pictureLine delays packets of pictures, and keeps their order.
type pictureLine struct {
	held  []heldPacket
	bytes int
}

// add holds a copy of a packet until it is due, or until the packet before it is due if that is later.
func (l *pictureLine) add(raw []byte, due time.Time) {
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
