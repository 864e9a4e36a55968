package stream

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
)

// way is what carries frames between both ends in a test, each way.
type way struct {
	loss, twice float64
	least, more time.Duration // how long it takes
	// rate is how many frames a second go through, queue how many wait before others are lost;
	// zero for no bound.
	rate, queue int
}

// underway is a frame that arrives.
type underway struct {
	at     time.Time
	number int // in which order they were sent
	bytes  []byte
	back   bool
}

type arrivals []underway

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].number < a[j].number
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)   { *a = append(*a, x.(underway)) }
func (a *arrivals) Pop() any {
	x := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return x
}

// world is a stream with both ends, and a clock.
type world struct {
	way
	t     interface{ Fatalf(string, ...any) }
	s     *Sender
	r     *Receiver
	now   time.Time
	draw  *rand.Rand
	under arrivals
	sent  int
	free  [2]time.Time // when the next frame can go through

	got     []Chunk
	hold    int // chunks that have come and are not taken yet, at most
	waiting []uint64
	memory  int // bytes that are free for chunks
}

func newWorld(t interface{ Fatalf(string, ...any) }, w way, seed uint64, window int) *world {
	x := &world{way: w, t: t, now: time.Unix(1000, 0), draw: rand.New(rand.NewPCG(seed, 1)), memory: 1 << 20}
	x.s = NewSender(SenderConfig{Stream: 7, Payload: 512, Queue: 1 << 20})
	x.r = NewReceiver(ReceiverConfig{Stream: 7, Window: window, MaxChunk: 1 << 16, Reserve: func(n int) bool {
		if n > x.memory {
			return false
		}
		x.memory -= n
		return true
	}})
	return x
}

// carry puts a frame on its way.
func (w *world) carry(f frame.Frame, back bool) {
	w.sent++
	if w.draw.Float64() < w.loss {
		return
	}
	times := 1
	if w.draw.Float64() < w.twice {
		times = 2
	}
	for range times {
		at := w.now
		if w.rate > 0 {
			free := &w.free[0]
			if back {
				free = &w.free[1]
			}
			gap := time.Second / time.Duration(w.rate)
			if free.Sub(w.now) > time.Duration(w.queue)*gap {
				return
			}
			at = later(*free, w.now).Add(gap)
			*free = at
		}
		at = at.Add(w.least)
		if w.more > 0 {
			at = at.Add(time.Duration(w.draw.Int64N(int64(w.more))))
		}
		heap.Push(&w.under, underway{at, w.sent, f.AppendTo(nil), back})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// step lets the next thing happen; false if nothing is left to.
func (w *world) step() bool {
	for _, d := range w.s.Send(w.now, 1<<10) {
		if d.Number >= w.r.next+uint64(w.r.Window) && w.r.next > 0 {
			w.t.Fatalf("frame %d is sent, with room until %d", d.Number, w.r.next+uint64(w.r.Window))
		}
		w.carry(&d, false)
	}
	if q, ask := w.s.Query(); ask {
		w.carry(&q, false)
	}
	due := w.s.Deadline()
	if len(w.under) == 0 || !due.IsZero() && due.Before(w.under[0].at) {
		if due.IsZero() {
			return false
		}
		w.now = later(w.now, due)
		w.s.Expire(w.now)
		return true
	}
	u := heap.Pop(&w.under).(underway)
	w.now = later(w.now, u.at)
	f, err := frame.Parse(u.bytes)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	switch f := f.(type) {
	case *frame.StreamAck:
		if err := w.s.Ack(f, w.now); err != nil {
			w.t.Fatalf("%v", err)
		}
	case *frame.StreamData:
		all, err := w.r.Data(f)
		w.take(all, err)
	case *frame.StreamQuery:
		w.take(w.r.Resume())
	}
	return true
}

// take takes the chunks that have come, some of them later, and answers.
func (w *world) take(all []Chunk, err error) {
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.got = append(w.got, all...)
	for _, c := range all {
		w.waiting = append(w.waiting, c.End)
		w.memory += len(c.Payload)
	}
	for len(w.waiting) > 0 && (len(w.waiting) > w.hold || w.draw.IntN(4) == 0) {
		w.r.Take(w.waiting[0])
		w.waiting = w.waiting[1:]
	}
	a := w.r.Ack()
	w.carry(&a, true)
}

// whole is an address of a header.
func whole(n byte) frame.Address { return frame.Address{GUID: frame.GUID{19: n}} }

// Whatever the way does to frames, each chunk arrives once, in order, as it was sent, and the
// sender forgets it when the receiver has taken it.
func TestChunksArriveOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, way{
			loss: rapid.Float64Range(0, 0.4).Draw(t, "loss"), twice: rapid.Float64Range(0, 0.3).Draw(t, "twice"),
			least: time.Duration(rapid.IntRange(0, 50_000).Draw(t, "least, us")) * time.Microsecond, more: time.Duration(rapid.IntRange(0, 50_000).Draw(t, "more, us")) * time.Microsecond,
			rate: rapid.SampledFrom([]int{0, 1000, 100_000}).Draw(t, "rate"), queue: rapid.IntRange(1, 100).Draw(t, "queue"),
		}, rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int{firstLimit, 64, 256}).Draw(t, "window"))
		w.hold = rapid.IntRange(0, 3).Draw(t, "held back")
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
			if steps > 1_000_000 {
				t.Fatalf("no end: %d of %d have come, next %d, due %v, now %v", len(w.got), len(sent), w.r.next, w.s.Deadline(), w.now)
			}
		}
		if diff := cmp.Diff(sent, w.got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Chunk{}, "End")); diff != "" {
			t.Fatalf("%s", diff)
		}
		if w.s.Queued() != 0 || len(w.s.sent.all) != 0 || w.r.ahead != 0 || w.r.Reserved() != 0 {
			t.Fatalf("left: %d bytes, %d frames, %d early, %d reserved", w.s.Queued(), len(w.s.sent.all), w.r.ahead, w.r.Reserved())
		}
	})
}

// On a way without losses no frame is sent twice; on one that loses what its queue does not hold
// few are, and it is used.
func TestWindowFitsTheWay(t *testing.T) {
	for name, x := range map[string]struct {
		way
		most  float64 // frames sent for each that is needed
		least float64 // part of the way's rate
	}{
		"no losses":     {way: way{least: 100 * time.Microsecond}, most: 1},
		"a long way":    {way: way{least: 40 * time.Millisecond, rate: 10_000, queue: 1000}, most: 1, least: 0.05}, // 64 frames a round trip of 80 ms
		"a full queue":  {way: way{least: time.Millisecond, rate: 10_000, queue: 20}, most: 1.1, least: 0.85},
		"a short queue": {way: way{least: time.Millisecond, rate: 10_000, queue: 5}, most: 1.2, least: 0.6},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, x.way, 1, 64)
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
			again := float64(w.s.sent.orders) / float64(w.s.end)
			took := w.now.Sub(began).Seconds()
			rate := float64(w.s.end) / took
			t.Logf("%.3f transmissions a frame, %.0f frames a second", again, rate)
			if again > x.most || rate < x.least*float64(x.rate) {
				t.Errorf("%.3f transmissions a frame, %.0f frames a second; want at most %.2f, at least %.0f", again, rate, x.most, x.least*float64(x.rate))
			}
		})
	}
}

// What does not fit is refused, and changes nothing.
func TestPushIsRefused(t *testing.T) {
	s := NewSender(SenderConfig{Payload: 512, Queue: 1000})
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

// A stream that begins anew has the chunks that were not taken, with their numbers, whatever has come of
// them.
func TestRestart(t *testing.T) {
	w := newWorld(t, way{least: time.Millisecond}, 1, 64)
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
	if w.s.Begun() || !w.s.Stream.After(before) || w.s.Queued() >= queued {
		t.Errorf("begun %v, stream %x after %x, %d bytes of %d", w.s.Begun(), w.s.Stream, before, w.s.Queued(), queued)
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

// An acknowledgement of what was never sent, or that contradicts itself, changes nothing.
func TestFalseAcknowledgements(t *testing.T) {
	s := NewSender(SenderConfig{Payload: 512, Queue: 1 << 20})
	if err := s.Push(0, frame.RoutingHeader{}, make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1, 0)
	s.Send(now, 8)
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
		r := NewReceiver(ReceiverConfig{Window: 16, MaxChunk: 1 << 10, Reserve: func(n int) bool { reserved += n; return reserved < 1<<14 }})
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
			s := NewSender(SenderConfig{Payload: 512, Queue: 1 << 20})
			s.sent.all = make([]outstanding, r.next+16)
			if err := s.Ack(&a, time.Unix(1, 0)); err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
		}
	})
}
