package media

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	northAddr = netip.MustParseAddrPort("192.0.2.1:20001")
	southAddr = netip.MustParseAddrPort("192.0.2.1:20002")
	start     = time.Unix(1_700_000_000, 0)
)

// sent is a packet of a channel with the time at which its producer sends it.
type sent struct {
	Packet
	at   time.Duration
	from netip.AddrPort
}

// id returns an identifier of the packet, unique in all films.
func (s sent) id() uint64 { return binary.BigEndian.Uint64(s.Payload[2:]) }

// film returns a channel with that many pictures of 40 ms, of which each gop-th is a key frame,
// and a sound packet each 20 ms.
func film(from netip.AddrPort, ssrc uint32, first uint16, stamp uint32, pictures, gop int) (out []sent) {
	serial := uint64(ssrc) << 32
	payload := func(header, second byte) []byte {
		serial++
		return binary.BigEndian.AppendUint64([]byte{header, second}, serial)
	}
	video, audio := first, first+7
	for i := range pictures {
		at := time.Duration(i) * 40 * time.Millisecond
		ts := stamp + uint32(i)*3600
		parts := [][]byte{payload(0x41, 0x80)}
		if i%gop == 0 {
			parts = [][]byte{payload(0x67, 0x42), payload(0x68, 0xce), payload(0x7c, 0x85), payload(0x7c, 0x45)}
		} else if i%3 == 0 {
			parts = append(parts, payload(0x41, 0x01))
		}
		for k, p := range parts {
			out = append(out, sent{Packet{Type: VideoType, Marker: k == len(parts)-1, Sequence: video, Timestamp: ts, SSRC: ssrc, Payload: p}, at, from})
			video++
		}
		for k := range 2 {
			at := at + time.Duration(k)*20*time.Millisecond
			out = append(out, sent{Packet{Type: AudioType, Sequence: audio, Timestamp: stamp + uint32(i*2+k)*960, SSRC: ssrc + 1, Payload: payload(0xfc, 0)}, at, from})
			audio++
		}
	}
	return out
}

// play pushes packets at their times and returns the output.
func play(s *Splicer, all []sent) (out []Out) {
	for _, p := range all {
		now := start.Add(p.at)
		out = append(out, keep(s.Tick(now))...)
		out = append(out, keep(s.Push(p.from, p.Packet, now))...)
	}
	return out
}

// keep copies output that is valid only until the next call.
func keep(out []Out) []Out {
	out = slices.Clone(out)
	for i := range out {
		out[i].Payload = slices.Clone(out[i].Payload)
	}
	return out
}

func videoOf(all []Out) []Out {
	return slices.DeleteFunc(slices.Clone(all), func(o Out) bool { return !o.Video() })
}

// TestSplicerFollows checks that a channel starts at its key frame and continues unchanged.
func TestSplicerFollows(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	all := film(northAddr, 1, 65530, 1<<32-9000, 100, 25)
	out := play(s, all[3:]) // the start of the first key frame is missing
	video := videoOf(out)
	if len(video) == 0 || !video[0].Cut || video[0].Payload[0] != 0x67 || s.Current() != northAddr || s.Changing() {
		t.Fatalf("%d packets, the first %+v", len(video), video[0])
	}
	began := slices.IndexFunc(all, func(p sent) bool { return p.Video() && p.at == time.Second })
	var want []sent
	for _, p := range all[began:] {
		if p.Video() {
			want = append(want, p)
		}
	}
	if len(video) != len(want) {
		t.Fatalf("%d packets, want %d", len(video), len(want))
	}
	for i, o := range video {
		if o.Timestamp-video[0].Timestamp != want[i].Timestamp-want[0].Timestamp || o.Sequence-video[0].Sequence != uint16(i) {
			t.Errorf("packet %d: %+v", i, o)
		}
	}
	if n := len(out) - len(video); n < 140 || n > 152 {
		t.Errorf("%d packets of sound in three seconds", n)
	}
	if c := s.Counts(); c.Lost != 0 || c.Packets != uint64(len(out)) {
		t.Errorf("%+v", c)
	}
}

// TestSplicerCutsAtBurst checks that a change is immediate with a burst, that the burst's
// pictures are 1 ms apart, and that the stream is soon aligned to the clock again.
func TestSplicerCutsAtBurst(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	north, south := film(northAddr, 1, 100, 5000, 100, 50), film(southAddr, 9, 3000, 77, 100, 50)
	const change = 3 * time.Second // 1 s into the second group of pictures
	before := play(s, slices.DeleteFunc(slices.Clone(north), func(p sent) bool { return p.at > change }))
	s.Change(southAddr)
	var burst, live []sent
	for _, p := range south {
		switch {
		case p.at >= 2*time.Second && p.at <= change && p.Video():
			p.at = change + time.Millisecond
			burst = append(burst, p)
		case p.at > change:
			live = append(live, p)
		}
	}
	cut := play(s, burst)
	video := videoOf(cut)
	if len(cut) != len(video) || !video[0].Cut || video[0].Payload[0] != 0x67 || len(video) < 26 {
		t.Fatalf("%d packets of %d from the burst", len(video), len(burst))
	}
	last := before[len(before)-1]
	for _, o := range slices.Backward(before) {
		if o.Video() {
			last = o
			break
		}
	}
	if step := video[0].Timestamp - last.Timestamp; step < 89 || step > 181 { // 1 to 2 ms after the last picture
		t.Errorf("the stream goes on by %d", step)
	}
	if squeezed := video[len(video)-1].Timestamp - video[0].Timestamp; squeezed != 25*90 {
		t.Errorf("25 pictures are %d apart, want 1 ms each", squeezed)
	}
	after := play(s, live)
	end := videoOf(after)
	if off := int32(end[len(end)-1].Timestamp-last.Timestamp) - 960*90; off < -900 || off > 900 {
		t.Errorf("after a second the stream is %d off the clock", off)
	}
	if sound := len(after) - len(end); sound < 45 {
		t.Errorf("%d packets of sound in a second", sound)
	}
	checkStream(t, slices.Concat(before, cut, after))
}

// TestSplicerHearsLiveSoundDuringBurst checks that live sound that arrives during a burst is
// heard at once, and not after it.
func TestSplicerHearsLiveSoundDuringBurst(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	out := play(s, film(northAddr, 1, 100, 5000, 50, 25))
	s.Change(southAddr)
	const at = 2 * time.Second
	var all []sent
	live := sent{at: at + 5*time.Millisecond}
	for i, p := range film(southAddr, 9, 3000, 77, 60, 50) {
		switch {
		case p.at < at && p.Video():
			p.at = at + time.Duration(i)*100*time.Microsecond // some 15 ms in all
			all = append(all, p)
		case p.at >= at && p.Audio() && live.Payload == nil:
			live = sent{p.Packet, live.at, p.from}
			all = append(all, live)
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	more := play(s, all)
	i := slices.IndexFunc(more, func(o Out) bool { return o.Audio() })
	if i < 0 || more[i].Packet.Sequence != live.Sequence || i > len(more)-10 {
		t.Fatalf("sound at %d of %d packets", i, len(more))
	}
	for _, o := range more[i+1:] {
		if o.Audio() {
			t.Errorf("sound %d after %d", o.Packet.Sequence, live.Sequence)
		}
	}
	checkStream(t, append(out, more...))
}

// TestSplicerLeavesOldSoundOut checks that sound that arrives in bulk, from a delayed producer,
// does not delay what follows.
func TestSplicerLeavesOldSoundOut(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	out := play(s, film(northAddr, 1, 100, 5000, 50, 25))
	s.Change(southAddr)
	south := film(southAddr, 9, 3000, 77, 100, 50)
	for i := range south {
		if south[i].at += time.Second; south[i].at < 3*time.Second {
			south[i].at = 2*time.Second + time.Duration(min(i, 40)/20)*10*time.Millisecond
		}
	}
	out = append(out, play(s, south)...)
	heard := 0
	for _, o := range out {
		if o.Audio() && o.SSRC == 10 {
			heard++
		}
	}
	if heard < 95 || heard > 110 { // of 150 in two seconds
		t.Errorf("%d packets of sound in two seconds", heard)
	}
	checkStream(t, out)
}

// TestSplicerLeavesOutWhatIsNotWhole checks that an incomplete picture, and what depends on it,
// is held back until a key frame arrives.
func TestSplicerLeavesOutWhatIsNotWhole(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	all := film(northAddr, 1, 100, 0, 75, 50)
	lossy := slices.DeleteFunc(slices.Clone(all), func(p sent) bool { return p.Video() && (p.Sequence == 120 || p.Sequence == 121) })
	out := videoOf(play(s, lossy))
	if c := s.Counts(); c.Lost != 2 {
		t.Errorf("%+v", c)
	}
	after := slices.IndexFunc(out, func(o Out) bool { return o.Packet.Sequence > 120 })
	if after != 20 || out[after].Payload[0] != 0x67 || len(out)-after < 25 {
		t.Errorf("%d packets, of which %d before what is missing", len(out), after)
	}
	checkStream(t, out)
}

// TestSplicerIsRepaired checks that missing packets are requested, and put in their place
// however late they arrive.
func TestSplicerIsRepaired(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	all := film(northAddr, 1, 100, 0, 50, 50)
	var missed sent
	for i := range all {
		if all[i].Video() && all[i].Sequence == 120 {
			missed = all[i]
			all[i].at += 400 * time.Millisecond
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	before := slices.DeleteFunc(slices.Clone(all), func(p sent) bool { return p.at > missed.at })
	out := play(s, before)
	for _, x := range []struct {
		after time.Duration
		is    bool
	}{{0, false}, {reorderTolerance, false}, {50*time.Millisecond + reorderTolerance, true}} {
		if ok := s.Missing(start.Add(missed.at + x.after)); ok != x.is {
			t.Errorf("after %v missing: %v", x.after, ok)
		}
		if x.after == reorderTolerance {
			out = append(out, play(s, slices.DeleteFunc(slices.Clone(all), func(p sent) bool { return p.at <= missed.at || p.at > missed.at+40*time.Millisecond }))...)
		}
	}
	out = append(out, play(s, slices.DeleteFunc(slices.Clone(all), func(p sent) bool { return p.at <= missed.at+40*time.Millisecond }))...)
	sentAll := 0
	for _, p := range all {
		if p.Video() {
			sentAll++
		}
	}
	if c := s.Counts(); c.Lost != 0 || len(videoOf(out)) != sentAll || s.Missing(start.Add(time.Hour)) {
		t.Errorf("%+v, %d packets of %d", c, len(videoOf(out)), sentAll)
	}
	checkStream(t, out)
}

// TestSplicerWaitsForLatePackets checks that nothing is lost if packets are late and out of
// order.
func TestSplicerWaitsForLatePackets(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	all := film(northAddr, 1, 100, 0, 50, 50)
	for i := range all {
		if i > 10 && i%3 == 0 {
			all[i].at += 60 * time.Millisecond
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	out := play(s, all)
	if c := s.Counts(); c.Lost != 0 || len(videoOf(out)) < 60 {
		t.Errorf("%+v, %d packets", c, len(videoOf(out)))
	}
	checkStream(t, out)
}

// TestSplicerBoundsWhatWaits checks the bound of packets that wait for a key frame or for a
// packet that never arrives.
func TestSplicerBoundsWhatWaits(t *testing.T) {
	s := NewSplicer()
	s.Change(northAddr)
	p := Packet{Type: VideoType, SSRC: 1, Payload: []byte{0x41, 0}}
	for i := range 5000 {
		p.Sequence, p.Timestamp = uint16(i), uint32(i)
		if out := s.Push(northAddr, p, start); len(out) > 0 || len(s.next.video.waiting) > videoWindow/2 {
			t.Fatalf("%d packets out, %d wait", len(out), len(s.next.video.waiting))
		}
	}
	p.Sequence, p.Timestamp, p.Payload = 5000, 5000, []byte{0x67, 0}
	if out := s.Push(northAddr, p, start); len(out) != 1 {
		t.Fatalf("%d packets out", len(out))
	}
	p.Payload, p.Sequence = []byte{0x41, 0}, 5001 // the packet before is missing
	for range 2000 {
		p.Sequence++
		if out := s.Push(northAddr, p, start); len(out) > 0 || len(s.current.video.waiting) > videoWindow {
			t.Fatalf("%d packets out, %d wait", len(out), len(s.current.video.waiting))
		}
	}
	p.Sequence++
	p.Payload = []byte{0x67, 0}
	n := len(s.Push(northAddr, p, start))
	n += len(s.Tick(start.Add(time.Second)))
	if c := s.Counts(); n != 1 || c.Lost == 0 || c.Lost > 2001 {
		t.Errorf("%d packets out, %+v", n, c)
	}
}

// TestSplicerFollowsRestarts checks that a restarted producer, with new numbers, is seen from
// its next key frame on.
func TestSplicerFollowsRestarts(t *testing.T) {
	for name, again := range map[string][]sent{
		"another source": film(northAddr, 33, 40000, 1, 60, 30),
		"other numbers":  film(northAddr, 1, 40000, 1, 60, 30),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSplicer()
			s.Change(northAddr)
			out := play(s, film(northAddr, 1, 100, 900_000, 60, 30))
			for i := range again {
				again[i].at += 5 * time.Second
			}
			more := play(s, again[1:]) // its first key frame is incomplete
			video := videoOf(more)
			if len(video) == 0 || video[0].Payload[0] != 0x67 || video[0].Cut || len(video) > 60 {
				t.Fatalf("%d packets", len(video))
			}
			checkNumbers(t, slices.Concat(out, more))
		})
	}
}

// TestSplicerFollowsClock checks that the stream stays near the clock when a producer was away, and
// sends what it has missed at once or goes on where it was, and when a producer's timestamps jump.
func TestSplicerFollowsClock(t *testing.T) {
	const away, jumped = 6 * time.Second, 4 * time.Second
	for name, change := range map[string]func(*sent){
		"away, then all at once": func(p *sent) { p.at = max(p.at, jumped+away) },
		"away, then as before":   func(p *sent) { p.at += away },
		"forward":                func(p *sent) { p.Timestamp += 3 * VideoClock },
		"back":                   func(p *sent) { p.Timestamp -= 3 * VideoClock },
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSplicer()
			s.Change(northAddr)
			all := film(northAddr, 1, 100, 5000, 400, 50)
			for i := range all {
				if all[i].at >= jumped {
					change(&all[i])
				}
			}
			var out []Out
			for _, p := range all {
				now := start.Add(p.at)
				for _, o := range keep(s.Push(p.from, p.Packet, now)) {
					out = append(out, o)
					if d := o.Time - p.at; d > maxDrift || d < -maxDrift {
						t.Fatalf("at %v a packet of type %d is stamped %v", p.at, o.Type, o.Time)
					}
				}
			}
			checkStream(t, out)
			if n := len(videoOf(out)); n < 400 {
				t.Errorf("%d packets of pictures", n)
			}
			if last := out[len(out)-1]; all[len(all)-1].at-last.Time > maxAudioLead {
				t.Errorf("the last packet is stamped %v, and sent at %v", last.Time, all[len(all)-1].at)
			}
		})
	}
}

// TestSplicerRepeats checks that a repeated picture has new numbers, and that the stream
// continues after it.
func TestSplicerRepeats(t *testing.T) {
	s, c := NewSplicer(), NewCache(wide)
	s.Change(northAddr)
	all := film(northAddr, 1, 100, 0, 40, 50)
	var out []Out
	for i, p := range all {
		now := start.Add(p.at)
		out = append(out, keep(s.Push(p.from, p.Packet, now))...)
		if !p.Video() {
			continue
		}
		put(t, c, now, datagram(t, p.Type, p.Sequence, p.Timestamp, p.Payload...))
		if i == len(all)/2 {
			var packets []Packet
			for _, raw := range c.Group() {
				again, err := Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				again.SSRC = p.SSRC
				packets = append(packets, again)
			}
			again := keep(s.Repeat(packets, now))
			if len(again) < 20 || again[0].Payload[0] != 0x67 {
				t.Fatalf("%d packets again", len(again))
			}
			out = append(out, again...)
		}
	}
	checkNumbers(t, out)
}

// checkStream checks what a player relies on in a stream.
func checkStream(t interface{ Errorf(string, ...any) }, out []Out) {
	checkNumbers(t, out)
	seen := map[uint64]bool{}
	for _, o := range out {
		id := sent{Packet: o.Packet}.id()
		if seen[id] {
			t.Errorf("packet %x twice", id)
		}
		seen[id] = true
	}
}

// checkNumbers checks numbers and times of each medium.
func checkNumbers(t interface{ Errorf(string, ...any) }, out []Out) {
	last := map[uint8]*Out{}
	for i := range out {
		o := &out[i]
		if before := last[o.Type]; before != nil {
			step := int32(o.Timestamp - before.Timestamp)
			same := o.Packet.Timestamp == before.Packet.Timestamp && o.SSRC == before.SSRC
			if o.Sequence != before.Sequence+1 || step < 0 || step == 0 && !same {
				t.Errorf("after %d at %d comes %d at %d (type %d)", before.Sequence, before.Timestamp, o.Sequence, o.Timestamp, o.Type)
			}
		}
		last[o.Type] = o
	}
}

// BenchmarkSplicer measures the cost of a packet that arrives in order.
func BenchmarkSplicer(b *testing.B) {
	s := NewSplicer()
	s.Change(northAddr)
	play(s, film(northAddr, 1, 100, 0, 1, 1))
	p := Packet{Type: VideoType, Sequence: 103, SSRC: 1, Payload: make([]byte, 1200)}
	p.Payload[0] = 0x41
	for b.Loop() {
		p.Sequence++
		p.Timestamp += 1000
		if out := s.Push(northAddr, p, start); len(out) != 1 {
			b.Fatalf("%d packets out", len(out))
		}
	}
}
