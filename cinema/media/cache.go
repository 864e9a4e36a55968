package media

import (
	"slices"
	"sync"
	"time"
)

// Limits bound a Cache. A group of pictures that goes beyond one of them is forgotten whole,
// because without its beginning it is of no use.
type Limits struct {
	Bytes   int // of datagrams
	Packets int
	Age     time.Duration // since the group's first packet
}

// Cache keeps a channel's pictures from the first packet of the last key frame on. It keeps no
// sound, which is of no use later: a player has no place for sound of before it is there. It is
// safe for concurrent use.
type Cache struct {
	limits Limits

	mu       sync.Mutex
	open     bool // a group has begun and is within the limits
	group    []cached
	bytes    int
	source   uint32    // of the video
	stamp    uint32    // of the key frame
	keyed    time.Time // when it came, also if its group is forgotten
	interval time.Duration
}

// cached is one packet of the group.
type cached struct {
	raw      []byte
	sequence uint16
}

// NewCache returns one that keeps nothing yet.
func NewCache(l Limits) *Cache { return &Cache{limits: l} }

// Add keeps a copy of a datagram, which p was parsed from, if it belongs to the group, in the
// order of sequence numbers, each once. Video of another source than before ends the group.
func (c *Cache) Add(p Packet, raw []byte, now time.Time) {
	if !p.Video() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(p, now)
	if !c.open {
		return
	}
	at, fits := c.place(p)
	if !fits {
		return
	}
	if c.bytes+len(raw) > c.limits.Bytes || len(c.group) >= c.limits.Packets || now.Sub(c.keyed) > c.limits.Age {
		c.forget()
		return
	}
	c.group = slices.Insert(c.group, at, cached{raw: slices.Clone(raw), sequence: p.Sequence})
	c.bytes += len(raw)
}

// follow begins a new group with a key frame that comes after the present group's, and ends
// the group of another source.
func (c *Cache) follow(p Packet, now time.Time) {
	if p.SSRC != c.source {
		c.forget()
		c.source, c.keyed, c.interval = p.SSRC, time.Time{}, 0
	}
	again := !c.keyed.IsZero() && p.Timestamp == c.stamp // another packet of the same picture
	late := len(c.group) > 0 && int16(p.Sequence-c.group[0].sequence) <= 0
	if !p.KeyFrame() || again || late {
		return
	}
	if !c.keyed.IsZero() {
		c.interval = now.Sub(c.keyed)
	}
	c.forget()
	c.open, c.stamp, c.keyed = true, p.Timestamp, now
}

// place says where in the group a packet belongs, if it does: one does not that comes twice or
// from before the group's first.
func (c *Cache) place(p Packet) (at int, fits bool) {
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

func (c *Cache) forget() { c.open, c.group, c.bytes = false, nil, 0 }

// Group returns the datagrams of the group, in order; none if no key frame has come, or if
// what has come since is beyond a limit. They are shared and must not be changed.
func (c *Cache) Group() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([][]byte, len(c.group))
	for i, x := range c.group {
		out[i] = x.raw
	}
	return out
}

// Size is what the group's datagrams take, in bytes.
func (c *Cache) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Interval is the time between the last two key frames; 0 if there were not two yet.
func (c *Cache) Interval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interval
}

// Age is how long ago the last key frame came; false if none has come.
func (c *Cache) Age(now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.keyed), !c.keyed.IsZero()
}

// Clear forgets the group and what was learnt of its source.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	c.source, c.keyed, c.interval = 0, time.Time{}, 0
}
