package media

import (
	"slices"
	"sync"
	"time"
)

// Limits bounds a Cache. A group of pictures that exceeds a limit is dropped completely, because a
// group without its beginning is useless.
type Limits struct {
	Bytes   int // total size of the datagrams
	Packets int
	Age     time.Duration // since the group's first packet
}

// Cache keeps a channel's pictures since the first packet of the last key frame. It keeps no
// sound, because a player cannot play sound from before its start. It is safe for concurrent
// use.
type Cache struct {
	limits Limits

	mu            sync.Mutex
	open          bool // a group has started and is within the limits
	group         []cached
	bytes         int
	source        uint32    // SSRC of the video
	keyFrameStamp uint32    // RTP timestamp of the last key frame
	keyFrameAt    time.Time // when the last key frame arrived; kept if the group is dropped
	interval      time.Duration
}

// cached is one packet of the group.
type cached struct {
	raw      []byte
	sequence uint16
}

// NewCache returns an empty Cache.
func NewCache(l Limits) *Cache { return &Cache{limits: l} }

// Add adds a copy of the datagram raw, from which p was parsed, if it belongs to the group. The group
// is in the order of sequence numbers, without duplicates. Video with another SSRC ends the
// group.
func (c *Cache) Add(p Packet, raw []byte, now time.Time) {
	if !p.Video() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startGroup(p, now)
	if !c.open {
		return
	}
	at, fits := c.position(p)
	if !fits {
		return
	}
	if c.bytes+len(raw) > c.limits.Bytes || len(c.group) >= c.limits.Packets || now.Sub(c.keyFrameAt) > c.limits.Age {
		c.drop()
		return
	}
	c.group = slices.Insert(c.group, at, cached{raw: slices.Clone(raw), sequence: p.Sequence})
	c.bytes += len(raw)
}

// startGroup starts a new group at a key frame that is later than the present group's, and
// drops a group of another SSRC.
func (c *Cache) startGroup(p Packet, now time.Time) {
	if p.SSRC != c.source {
		c.drop()
		c.source, c.keyFrameAt, c.interval = p.SSRC, time.Time{}, 0
	}
	samePicture := !c.keyFrameAt.IsZero() && p.Timestamp == c.keyFrameStamp // another packet of the group's key frame
	late := len(c.group) > 0 && int16(p.Sequence-c.group[0].sequence) <= 0
	if !p.KeyFrame() || samePicture || late {
		return
	}
	if !c.keyFrameAt.IsZero() {
		c.interval = now.Sub(c.keyFrameAt)
	}
	c.drop()
	c.open, c.keyFrameStamp, c.keyFrameAt = true, p.Timestamp, now
}

// position returns the index in the group at which a packet is to be inserted. fits is false for
// duplicates and for packets before the group's first one.
func (c *Cache) position(p Packet) (at int, fits bool) {
	for i, x := range slices.Backward(c.group) {
		switch d := int16(p.Sequence - x.sequence); {
		case d == 0:
			return 0, false
		case d > 0:
			return i + 1, true
		}
	}
	return 0, len(c.group) == 0
}

func (c *Cache) drop() { c.open, c.group, c.bytes = false, nil, 0 }

// Group returns the datagrams of the group, in order. There are none before the first key
// frame, or if the group has exceeded a limit. They are shared and must not be changed.
func (c *Cache) Group() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([][]byte, len(c.group))
	for i, x := range c.group {
		out[i] = x.raw
	}
	return out
}

// Size returns the total size of the group's datagrams in bytes.
func (c *Cache) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Interval returns the time between the last two key frames, or zero before the second one.
func (c *Cache) Interval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interval
}

// Age returns how long ago the last key frame arrived, and reports whether one has arrived.
func (c *Cache) Age(now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.keyFrameAt), !c.keyFrameAt.IsZero()
}

// Clear drops the group, and everything that the cache has recorded of the group's source.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	c.source, c.keyFrameAt, c.interval = 0, time.Time{}, 0
}
