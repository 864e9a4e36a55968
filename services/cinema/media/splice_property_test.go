package media

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// arrives loses, duplicates and delays some packets of a film.
func arrives(t *rapid.T, all []sent) (out []sent) {
	trouble := rapid.IntRange(0, 30).Draw(t, "trouble") // percent
	for _, p := range all {
		if rapid.IntRange(0, 99).Draw(t, "fate") >= trouble {
			out = append(out, p)
			continue
		}
		switch rapid.SampledFrom([]string{"lost", "twice", "late"}).Draw(t, "how") {
		case "twice":
			again := p
			again.at += time.Duration(rapid.IntRange(0, 300).Draw(t, "again")) * time.Millisecond
			out = append(out, p, again)
		case "late":
			p.at += time.Duration(rapid.IntRange(0, 150).Draw(t, "by")) * time.Millisecond
			out = append(out, p)
		}
	}
	return out
}

// TestSplicerHolds checks that, for any packets in any order, a player can play the stream:
// sequence numbers without gaps, times that advance, no duplicates, nothing of a channel before
// its key frame, and nothing of another channel after that. It also checks the bound of waiting
// packets.
func TestSplicerHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gop := rapid.IntRange(5, 40).Draw(t, "gop")
		first := rapid.Uint16().Draw(t, "first")
		stamp := rapid.Uint32().Draw(t, "stamp")
		north, south := film(northAddr, 1, first, stamp, 80, gop), film(southAddr, 101, first/2, stamp*3, 80, gop)
		all := append(arrives(t, north), arrives(t, south)...)
		changes := map[time.Duration]netip.AddrPort{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			at := time.Duration(rapid.IntRange(0, 3000).Draw(t, "change")) * time.Millisecond
			to, whole := northAddr, north
			if rapid.Bool().Draw(t, "south") {
				to, whole = southAddr, south
			}
			changes[at] = to
			if rapid.Bool().Draw(t, "burst") { // the group of pictures so far
				all = append(all, burst(whole, at, gop)...)
			}
		}
		slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
		splices(t, all, changes)
	})
}

func burst(film []sent, at time.Duration, gop int) (out []sent) {
	key := at.Truncate(time.Duration(gop) * 40 * time.Millisecond)
	for _, p := range film {
		if p.at >= key && p.at <= at {
			p.at = at
			out = append(out, p)
		}
	}
	return out
}

// run plays what arrives while channels are changed.
type run struct {
	*Splicer
	t    *rapid.T
	out  []Out
	sees netip.AddrPort
	// seen and the field below are of the present visit of a channel: the packets that were in
	// the stream, and the last one of each medium.
	seen map[uint64]bool
	last map[uint8]uint16
}

func splices(t *rapid.T, all []sent, changes map[time.Duration]netip.AddrPort) {
	r := &run{Splicer: NewSplicer(), t: t}
	r.Change(northAddr)
	times := slices.Sorted(maps.Keys(changes))
	for _, p := range all {
		now := start.Add(p.at)
		for len(times) > 0 && times[0] <= p.at {
			r.Change(changes[times[0]])
			times = times[1:]
		}
		r.take(r.Tick(now))
		r.take(r.Push(p.from, p.Packet, now))
		for _, f := range []*feed{r.current, r.next} {
			if f != nil && (len(f.video.waiting) > videoWindow+1 || len(f.audio.waiting) > audioWindow+1) {
				t.Fatalf("%d and %d packets wait", len(f.video.waiting), len(f.audio.waiting))
			}
		}
	}
	checkNumbers(t, r.out)
}

func (r *run) take(some []Out) {
	for _, o := range some {
		if o.Cut {
			r.sees, r.seen, r.last = r.Current(), map[uint64]bool{}, map[uint8]uint16{}
			if o.Payload[0] != 0x67 {
				r.t.Errorf("a cut at %x", o.Payload)
			}
		}
		of := northAddr
		if o.SSRC > 100 {
			of = southAddr
		}
		if of != r.sees {
			r.t.Errorf("a packet of %v while %v is seen", of, r.sees)
		}
		id := sent{Packet: o.Packet}.id()
		last, any := r.last[o.Type]
		if r.seen[id] || any && int16(o.Packet.Sequence-last) <= 0 {
			r.t.Errorf("packet %d after %d", o.Packet.Sequence, last)
		}
		r.seen[id], r.last[o.Type] = true, o.Packet.Sequence
	}
	r.out = append(r.out, keep(some)...)
}

// FuzzSplicer checks that a splicer keeps its bounds, and makes a continuous stream, for any
// datagrams.
func FuzzSplicer(f *testing.F) {
	f.Add([]byte{0, 96, 0, 1, 0x67, 1, 96, 0, 2, 0x65, 2, 111, 0, 3, 0xfc})
	f.Add([]byte{4, 96, 255, 255, 0x67, 0, 96, 0, 0, 0x78, 3, 96, 0, 0, 0x65})
	f.Fuzz(func(t *testing.T, script []byte) {
		s, now := NewSplicer(), start
		s.Change(northAddr)
		var out []Out
		for len(script) >= 5 {
			what, kind, number, nal := script[0], script[1], uint16(script[2])<<8|uint16(script[3]), script[4]
			script = script[5:]
			from := northAddr
			if what&1 != 0 {
				from = southAddr
			}
			if what&2 != 0 {
				s.Change(from)
			}
			now = now.Add(time.Duration(int8(what)) * time.Millisecond)
			out = append(out, keep(s.Tick(now))...)
			p := Packet{Type: kind, Sequence: number, Timestamp: uint32(number) << (what % 20), SSRC: uint32(what >> 6), Payload: []byte{nal, what, 2, nal, 0, 0, 0, 0, 0, 0}}
			out = append(out, keep(s.Push(from, p, now))...)
			if what&0x30 == 0x30 {
				out = append(out, keep(s.Repeat([]Packet{p}, now))...)
			}
			for _, f := range []*feed{s.current, s.next} {
				if f != nil && (len(f.video.waiting) > videoWindow+1 || len(f.audio.waiting) > audioWindow+1) {
					t.Fatalf("%d and %d packets wait", len(f.video.waiting), len(f.audio.waiting))
				}
			}
		}
		last := map[uint8]Out{}
		for _, o := range out {
			before, any := last[o.Type]
			if any && (o.Sequence != before.Sequence+1 || int32(o.Timestamp-before.Timestamp) < 0) {
				t.Fatalf("after %d at %d comes %d at %d", before.Sequence, before.Timestamp, o.Sequence, o.Timestamp)
			}
			last[o.Type] = o
		}
	})
}
