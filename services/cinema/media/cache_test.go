package media

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var wide = Limits{Bytes: 1 << 20, Packets: 1000, Age: 10 * time.Second}

// put parses and adds a datagram.
func put(t testing.TB, c *Cache, now time.Time, b []byte) {
	t.Helper()
	p, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	c.Add(p, b, now)
}

// TestCache checks that the group holds everything since the first packet of the last key
// frame.
func TestCache(t *testing.T) {
	c, now := NewCache(wide), time.Unix(0, 0)
	key, slice := []byte{0x67, 1}, []byte{0x41, 1}
	if _, known := c.Age(now); known {
		t.Error("the age of no key frame is known")
	}
	put(t, c, now, datagram(t, VideoType, 1, 100, slice...))
	put(t, c, now, datagram(t, AudioType, 1, 100, 1))
	if g := c.Group(); len(g) != 0 {
		t.Fatalf("%d packets before a key frame", len(g))
	}
	want := [][]byte{
		datagram(t, VideoType, 2, 200, key...), datagram(t, VideoType, 3, 200, 0x68, 1), datagram(t, VideoType, 4, 200, 0x65, 1),
		datagram(t, VideoType, 5, 300, slice...),
	}
	for _, b := range want {
		put(t, c, now, b)
	}
	put(t, c, now, datagram(t, AudioType, 2, 200, 1)) // sound and RTCP are not kept
	put(t, c, now, []byte{0x80, 200, 0, 1, 0, 0, 0, 7})
	if g := c.Group(); !slices.EqualFunc(g, want, bytes.Equal) || c.Interval() != 0 {
		t.Fatalf("%x, interval %v", g, c.Interval())
	}
	later := now.Add(1500 * time.Millisecond)
	next := datagram(t, VideoType, 6, 400, key...)
	put(t, c, later, next)
	if g := c.Group(); !slices.EqualFunc(g, [][]byte{next}, bytes.Equal) || c.Interval() != 1500*time.Millisecond || c.Size() != len(next) {
		t.Errorf("%x of %d bytes, interval %v", g, c.Size(), c.Interval())
	}
	if age, known := c.Age(later.Add(time.Second)); !known || age != time.Second {
		t.Errorf("age %v %v", age, known)
	}
	c.Clear()
	if _, known := c.Age(later); known || len(c.Group()) != 0 || c.Size() != 0 || c.Interval() != 0 {
		t.Error("something is left")
	}
}

// TestCacheOrder checks that a late packet is put in its place, unless it precedes the group's
// first packet.
func TestCacheOrder(t *testing.T) {
	c, now := NewCache(wide), time.Unix(0, 0)
	first := datagram(t, VideoType, 65534, 200, 0x67, 1)
	put(t, c, now, first)
	for _, sequence := range []uint16{1, 65535, 0, 65530, 1, 3, 2, 65534} { // 65530 is too old, 1 and 65534 are duplicates
		put(t, c, now, datagram(t, VideoType, sequence, 201, 0x41, 1))
	}
	put(t, c, now, datagram(t, VideoType, 65529, 100, 0x67, 1)) // an older key frame
	var got []uint16
	for _, b := range c.Group() {
		p, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Sequence)
	}
	if want := []uint16{65534, 65535, 0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestCacheLimits checks that a group that is too long is dropped, and that the next one is
// kept again.
func TestCacheLimits(t *testing.T) {
	key, slice := []byte{0x65, 1}, make([]byte, 100)
	for name, limits := range map[string]Limits{
		"bytes":   {Bytes: 500, Packets: 1000, Age: time.Hour},
		"packets": {Bytes: 1 << 20, Packets: 5, Age: time.Hour},
		"age":     {Bytes: 1 << 20, Packets: 1000, Age: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := NewCache(limits), time.Unix(0, 0)
			put(t, c, now, datagram(t, VideoType, 0, 0, key...))
			for i := range uint16(10) {
				now = now.Add(time.Second)
				put(t, c, now, datagram(t, VideoType, i+1, uint32(i)+1, slice...))
			}
			put(t, c, now, datagram(t, VideoType, 11, 0, key...)) // still the same picture
			if n := len(c.Group()); n != 0 || c.Size() != 0 {
				t.Errorf("%d packets of %d bytes", n, c.Size())
			}
			put(t, c, now, datagram(t, VideoType, 12, 99, key...))
			if n := len(c.Group()); n != 1 {
				t.Errorf("%d packets of the next group", n)
			}
		})
	}
}

// TestCacheSource checks that another producer's video does not continue the group.
func TestCacheSource(t *testing.T) {
	c, now := NewCache(wide), time.Unix(0, 0)
	put(t, c, now, datagram(t, VideoType, 1, 1, 0x65, 1))
	other := datagram(t, VideoType, 2, 2, 0x41, 1)
	other[11]++ // the last byte of the SSRC
	if put(t, c, now, other); len(c.Group()) != 0 {
		t.Error("it does")
	}
}

// TestCacheHolds checks that, for any packets in any order, a group starts with a key frame,
// has each video packet once and in order, and is within the limits.
func TestCacheHolds(t *testing.T) {
	payloads := [][]byte{{0x67, 1}, {0x65, 1}, {0x41, 1}, {0x7c, 0x85, 1}, {0x7c, 0x05, 1}, {}}
	rapid.Check(t, func(rt *rapid.T) {
		limits := Limits{
			Bytes: rapid.IntRange(20, 400).Draw(rt, "bytes"), Packets: rapid.IntRange(1, 20).Draw(rt, "packets"),
			Age: time.Duration(rapid.IntRange(0, 5).Draw(rt, "age")) * time.Second,
		}
		c, now := NewCache(limits), time.Unix(0, 0)
		base := rapid.Uint16().Draw(rt, "first")
		for range rapid.IntRange(1, 60).Draw(rt, "packets in all") {
			kind := rapid.SampledFrom([]uint8{VideoType, VideoType, VideoType, AudioType, 0}).Draw(rt, "type")
			sequence := base + rapid.Uint16Range(0, 40).Draw(rt, "sequence")
			put(t, c, now, datagram(t, kind, sequence, uint32(sequence-base)/4, rapid.SampledFrom(payloads).Draw(rt, "payload")...))
			now = now.Add(time.Duration(rapid.IntRange(0, 1).Draw(rt, "second")) * time.Second)
			holds(rt, c, limits)
		}
	})
}

func holds(t *rapid.T, c *Cache, limits Limits) {
	group, size := c.Group(), 0
	var last *Packet
	for i, b := range group {
		size += len(b)
		p, err := Parse(b)
		if err != nil || i == 0 && !p.KeyFrame() || !p.Video() {
			t.Fatalf("packet %d: %+v %v", i, p, err)
		}
		if last != nil && int16(p.Sequence-last.Sequence) <= 0 {
			t.Fatalf("%d after %d", p.Sequence, last.Sequence)
		}
		last = &p
	}
	if size != c.Size() || size > limits.Bytes || len(group) > limits.Packets {
		t.Fatalf("%d packets of %d bytes, which are said to be %d; limits %+v", len(group), size, c.Size(), limits)
	}
}

// TestCacheTogether checks concurrent use by a producer, bursts and requests for the state.
func TestCacheTogether(t *testing.T) {
	c, now := NewCache(wide), time.Unix(0, 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint16(2000) {
			payload := []byte{0x41, 1}
			if i%50 == 0 {
				payload[0] = 0x65
			}
			put(t, c, now, datagram(t, VideoType, i, uint32(i), payload...))
		}
	})
	for range 2 {
		wg.Go(func() {
			for range 500 {
				for _, b := range c.Group() {
					if _, err := Parse(b); err != nil {
						t.Error(err)
					}
				}
				c.Interval()
			}
		})
	}
	wg.Wait()
	if len(c.Group()) != 50 {
		t.Errorf("%d packets", len(c.Group()))
	}
}
