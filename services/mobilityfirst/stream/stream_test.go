package stream

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Whatever a path does to frames, each chunk arrives once, in order and unchanged, and the sender
// forgets it when the receiver has taken it over.
func TestChunksArriveOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ways := make([]way, rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "ways"))
		for i := range ways {
			ways[i] = way{
				loss: rapid.Float64Range(0, 0.4).Draw(t, "loss"), twice: rapid.Float64Range(0, 0.3).Draw(t, "twice"),
				least: time.Duration(rapid.IntRange(0, 50_000).Draw(t, "least, us")) * time.Microsecond, more: time.Duration(rapid.IntRange(0, 50_000).Draw(t, "more, us")) * time.Microsecond,
				rate: rapid.SampledFrom([]int{0, 1000, 100_000}).Draw(t, "rate"), queue: rapid.IntRange(1, 100).Draw(t, "queue"),
			}
			if i > 0 && rapid.Bool().Draw(t, "dead") {
				ways[i].loss = 1
			}
		}
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int{initialLimit, 64, 256}).Draw(t, "window"), ways...)
		drops := map[int]int{} // in which step which way is dropped: not the first, which may be the only one that is not dead
		for i := len(ways) - 1; i > 0; i-- {
			if rapid.Bool().Draw(t, "dropped") {
				drops[rapid.IntRange(0, 500).Draw(t, "step")] = i
			}
		}
		w.hold = rapid.IntRange(0, 3).Draw(t, "held back")
		w.room = rapid.SampledFrom([]int{0, 128, 1024}).Draw(t, "room")
		w.memory = rapid.SampledFrom([]int{20_000, 1 << 20}).Draw(t, "memory")
		var sent []Chunk
		for i, size := range rapid.SliceOfN(rapid.IntRange(0, 20_000), 1, 12).Draw(t, "chunks") {
			h := frame.RoutingHeader{Version: 1, ChunkSize: uint32(size), Source: whole(1), Destination: whole(byte(i))}
			if i%3 == 1 {
				h.Extensions = []frame.Extension{{Service: frame.Compute, Body: []byte{1, 2, 3, byte(i)}}}
			}
			payload := make([]byte, size)
			for j := range payload {
				payload[j] = byte(w.draw.Uint32())
			}
			if err := w.s.Push(uint64(i), h, payload); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, Chunk{Number: uint64(i), RoutingHeader: h, Payload: payload})
		}
		for steps := 0; w.step(); steps++ {
			if i, is := drops[steps]; is && i < len(w.ways) {
				w.drop(i)
			}
			if steps > 1_000_000 {
				t.Fatalf("no end: %d of %d have come, next %d, due %v, now %v", len(w.got), len(sent), w.r.next, w.s.Deadline(), w.now)
			}
		}
		if diff := cmp.Diff(sent, w.got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Chunk{}, "End")); diff != "" {
			t.Fatalf("%s", diff)
		}
		if w.s.Queued() != 0 || len(w.s.sent.all) != 0 || w.r.buffered != 0 || w.r.Reserved() != 0 {
			t.Fatalf("left: %d bytes, %d frames, %d early, %d reserved", w.s.Queued(), len(w.s.sent.all), w.r.buffered, w.r.Reserved())
		}
	})
}

// On a path without losses no frame is sent twice; on one that drops what its queue cannot hold few
// frames are, and the path is fully used.
func TestWindowFitsTheWay(t *testing.T) {
	for name, x := range map[string]struct {
		way
		room  int     // that there may be
		most  float64 // frames sent for each that is needed
		least float64 // part of the way's rate
	}{
		"no losses":             {way: way{least: 100 * time.Microsecond}, most: 1},
		"a long way":            {way: way{least: 40 * time.Millisecond, rate: 10_000, queue: 1000}, most: 1, least: 0.05},             // 64 frames a round trip of 80 ms
		"a long way, with room": {way: way{least: 40 * time.Millisecond, rate: 10_000, queue: 1000}, room: 1024, most: 1, least: 0.15}, // and most of them are sent before it is there,
		"a full queue":          {way: way{least: time.Millisecond, rate: 10_000, queue: 20}, most: 1.1, least: 0.85},
		"a short queue":         {way: way{least: time.Millisecond, rate: 10_000, queue: 5}, most: 1.2, least: 0.6},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 64, x.way)
			w.room = x.room
			const chunks = 40
			for range chunks {
				if err := w.s.Push(0, frame.RoutingHeader{}, make([]byte, 1<<14)); err != nil {
					t.Fatal(err)
				}
			}
			began := w.now
			for w.step() {
			}
			if len(w.got) != chunks {
				t.Fatalf("%d chunks have come", len(w.got))
			}
			again := float64(w.ways[0].path.transmissions) / float64(w.s.end)
			took := w.now.Sub(began).Seconds()
			rate := float64(w.s.end) / took
			t.Logf("%.3f transmissions a frame, %.0f frames a second", again, rate)
			if again > x.most || rate < x.least*float64(x.rate) {
				t.Errorf("%.3f transmissions a frame, %.0f frames a second; want at most %.2f, at least %.0f", again, rate, x.most, x.least*float64(x.rate))
			}
		})
	}
}

// A stream with several paths gets about the sum of what they carry, even if one is shorter or
// faster; with little to send it uses only the shorter one; and when one dies it continues on the
// other immediately.
func TestSeveralWays(t *testing.T) {
	for name, x := range map[string]struct {
		ways  []way
		least float64 // part of what they carry together
	}{
		"alike":            {[]way{{least: time.Millisecond, rate: 10_000, queue: 50}, {least: time.Millisecond, rate: 10_000, queue: 50}}, 0.85},
		"one longer":       {[]way{{least: time.Millisecond, rate: 10_000, queue: 50}, {least: 3 * time.Millisecond, rate: 10_000, queue: 50}}, 0.8},
		"one slower":       {[]way{{least: time.Millisecond, rate: 10_000, queue: 50}, {least: time.Millisecond, rate: 3_000, queue: 50}}, 0.8},
		"deep queues":      {[]way{{least: time.Millisecond, rate: 10_000, queue: 1000}, {least: 2 * time.Millisecond, rate: 10_000, queue: 1000}}, 0.8},
		"three":            {[]way{{least: time.Millisecond, rate: 5_000, queue: 50}, {least: time.Millisecond, rate: 5_000, queue: 50}, {least: 2 * time.Millisecond, rate: 5_000, queue: 50}}, 0.8},
		"one of them dead": {[]way{{least: time.Millisecond, rate: 10_000, queue: 50}, {loss: 1}}, 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 128, x.ways...)
			const chunks = 400
			for range chunks {
				if err := w.s.Push(0, frame.RoutingHeader{}, make([]byte, 1<<14)); err != nil {
					t.Fatal(err)
				}
			}
			began := w.now
			for w.step() {
			}
			rate, together, parts := float64(w.s.end)/w.now.Sub(began).Seconds(), 0, []int{}
			for _, by := range w.ways {
				together += by.rate
				parts = append(parts, by.frames)
			}
			t.Logf("%.0f frames a second of %d, %v by each, for %d", rate, together, parts, w.s.end)
			if rate < x.least*float64(together) || len(w.got) != chunks {
				t.Errorf("%.0f frames a second, want %.2f of %d; %d chunks", rate, x.least, together, len(w.got))
			}
		})
	}
	t.Run("little", func(t *testing.T) {
		w := newWorld(t, 1, 128, way{least: 5 * time.Millisecond}, way{least: time.Millisecond})
		for i := range 200 {
			if err := w.s.Push(uint64(i), frame.RoutingHeader{}, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			for w.s.Chunks() > 0 && w.step() {
			}
		}
		if long, short := w.ways[0].frames, w.ways[1].frames; long > short/4 {
			t.Errorf("%d frames go the longer way, %d the shorter", long, short)
		}
	})
}

// A chunk that does not fit is refused without any effect.
func TestPushIsRefused(t *testing.T) {
	s := NewSender(SenderConfig{Payload: 512, Queue: 1000}, NewPath())
	if err := s.Push(0, frame.RoutingHeader{}, make([]byte, 5000)); err != nil {
		t.Errorf("a chunk that is larger than the queue, alone: %v", err)
	}
	end := s.end
	if err := s.Push(0, frame.RoutingHeader{}, nil); !errors.Is(err, ErrFull) {
		t.Errorf("another: %v", err)
	}
	s.take(end)
	if err := s.Push(0, frame.RoutingHeader{Extensions: []frame.Extension{{Body: make([]byte, 600)}}}, nil); !errors.Is(err, frame.ErrLayout) {
		t.Errorf("a header larger than a frame: %v", err)
	}
	if s.end != end || s.Queued() != 0 {
		t.Errorf("%d frames, %d bytes", s.end, s.Queued())
	}
}

// A restarted stream contains the chunks that were not taken over, with their numbers, whichever of
// their frames had arrived.
func TestRestart(t *testing.T) {
	w := newWorld(t, 1, 64, way{least: time.Millisecond})
	for i := range uint64(4) {
		if err := w.s.Push(i, frame.RoutingHeader{}, make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	for w.s.Chunks() == 4 {
		w.step()
	}
	taken := uint64(4 - w.s.Chunks())
	before, queued := w.s.Stream, w.s.Queued()
	w.s.Abandon(1)
	w.s.Restart(700)
	if w.s.Started() || !w.s.Stream.After(before) || w.s.Queued() >= queued {
		t.Errorf("begun %v, stream %x after %x, %d bytes of %d", w.s.Started(), w.s.Stream, before, w.s.Queued(), queued)
	}
	w.under, w.got, w.waiting = nil, nil, nil
	w.r = NewReceiver(ReceiverConfig{Stream: w.s.Stream, Window: 64, MaxChunk: 1 << 16, Reserve: func(int) bool { return true }})
	for w.step() {
	}
	for i, c := range w.got {
		if c.Number != taken+1+uint64(i) || len(c.Payload) != 10_000 {
			t.Errorf("chunk %d, %d bytes", c.Number, len(c.Payload))
		}
	}
	if len(w.got) != int(4-taken-1) || w.s.Queued() != 0 {
		t.Errorf("%d chunks, %d bytes left", len(w.got), w.s.Queued())
	}
}

// An acknowledgement of frames that were never sent, or that contradicts itself, has no effect.
func TestFalseAcknowledgements(t *testing.T) {
	s := NewSender(SenderConfig{Payload: 512, Queue: 1 << 20}, NewPath())
	if err := s.Push(0, frame.RoutingHeader{}, make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1, 0)
	s.Send(s.paths[0], now, 8)
	for name, a := range map[string]frame.StreamAck{
		"beyond":             {Next: 9, Limit: 99},
		"taken, not come":    {Next: 3, Taken: 4, Limit: 99},
		"no room":            {Next: 3, Limit: 2},
		"a range beyond":     {Next: 3, Limit: 99, Ranges: []frame.Range{{Skip: 1, Count: 5}}},
		"a range of nothing": {Next: 3, Limit: 99, Ranges: []frame.Range{{Skip: 1}}},
		"ranges that touch":  {Next: 3, Limit: 99, Ranges: []frame.Range{{Skip: 1, Count: 1}, {Count: 1}}},
		"a huge number":      {Next: 1<<64 - 1, Taken: 1<<64 - 1, Limit: 1<<64 - 1},
	} {
		before := fmt.Sprintf("%+v", *s)
		if err := s.Ack(&a, now); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", name, err)
		}
		if after := fmt.Sprintf("%+v", *s); after != before {
			t.Errorf("%s: was %s, is %s", name, before, after)
		}
	}
}

// Frames that contradict each other end the stream.
func TestFalseFrames(t *testing.T) {
	head := func(size uint32, payload int) []byte {
		b, err := (&frame.RoutingHeader{ChunkSize: size}).AppendTo(make([]byte, numberSize))
		if err != nil {
			t.Fatal(err)
		}
		return append(b, make([]byte, payload)...)
	}
	var large *TooLarge
	for name, x := range map[string]struct {
		frames []frame.StreamData
		is     func(error) bool
	}{
		"no room":             {[]frame.StreamData{{Number: 64, Payload: []byte{1}}}, func(err error) bool { return errors.Is(err, ErrViolation) }},
		"empty":               {[]frame.StreamData{{Number: 0}}, func(err error) bool { return errors.Is(err, ErrViolation) }},
		"no header":           {[]frame.StreamData{{Number: 0, Payload: []byte{1}}}, func(err error) bool { return errors.Is(err, frame.ErrShort) }},
		"too large":           {[]frame.StreamData{{Number: 0, Payload: head(1001, 0)}}, func(err error) bool { return errors.As(err, &large) }},
		"beyond its chunk":    {[]frame.StreamData{{Number: 0, Payload: head(10, 9)}, {Number: 1, Payload: []byte{1, 2}}}, func(err error) bool { return errors.Is(err, ErrViolation) }},
		"beyond, come before": {[]frame.StreamData{{Number: 1, Payload: []byte{1, 2}}, {Number: 0, Payload: head(10, 9)}}, func(err error) bool { return errors.Is(err, ErrViolation) }},
	} {
		r := NewReceiver(ReceiverConfig{Window: 64, MaxChunk: 1000, Reserve: func(int) bool { return true }})
		var err error
		for _, d := range x.frames {
			if err != nil {
				t.Errorf("%s: %v too early", name, err)
			}
			_, err = r.Data(&d)
		}
		if !x.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReceiver: frames of a hostile sender cost no more than the window and what is reserved.
func FuzzReceiver(f *testing.F) {
	b, err := (&frame.RoutingHeader{ChunkSize: 3}).AppendTo(make([]byte, numberSize))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(append([]byte{63}, b...), 1, 2, 3), uint8(64))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		reserved := 0
		r := NewReceiver(ReceiverConfig{Window: 16, MaxChunk: 1 << 10, GrowWindow: func(n int) bool { return n <= 64 }, Reserve: func(n int) bool { reserved += n; return reserved < 1<<14 }})
		for len(in) > 0 {
			d := frame.StreamData{Number: r.next + uint64(in[0])%20 - 2}
			in = in[1:]
			n := min(len(in), int(size))
			d.Payload, in = bytes.Clone(in[:n]), in[n:]
			all, err := r.Data(&d)
			for _, c := range all {
				if int(c.ChunkSize) != len(c.Payload) || c.End > r.next {
					t.Fatalf("%+v", c)
				}
				r.Take(c.End)
			}
			if err != nil {
				return
			}
			a := r.Ack()
			s := NewSender(SenderConfig{Payload: 512, Queue: 1 << 20}, NewPath())
			s.sent.all = slices.Repeat([]sentFrame{{path: s.paths[0]}}, int(r.next)+r.Window)
			if err := s.Ack(&a, time.Unix(1, 0)); err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
		}
	})
}
