package stream

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// way carries frames between both ends in a test, in each direction.
type way struct {
	loss, twice float64
	least, more time.Duration // how long it takes
	// rate is how many frames a second go through, queue how many wait before others are lost;
	// zero for no bound.
	rate, queue int

	path   *Path
	frames int          // that were sent
	free   [2]time.Time // when the next frame can go through, there and back
}

// underway is a frame in flight.
type underway struct {
	at     time.Time
	number int // in which order they were sent
	bytes  []byte
	by     *way
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

// world is a stream with both ends and a clock.
type world struct {
	ways  []*way
	t     interface{ Fatalf(string, ...any) }
	s     *Sender
	r     *Receiver
	now   time.Time
	draw  *rand.Rand
	under arrivals
	sent  int

	got     []Chunk
	hold    int // chunks that have come and are not taken yet, at most
	waiting []uint64
	memory  int // bytes that are free for chunks
	room    int // for how many frames there may be room
}

func newWorld(t interface{ Fatalf(string, ...any) }, seed uint64, window int, ways ...way) *world {
	x := &world{t: t, now: time.Unix(1000, 0), draw: rand.New(rand.NewPCG(seed, 1)), memory: 1 << 20}
	for i := range ways {
		w := &ways[i]
		x.ways = append(x.ways, w)
		if w.path = NewPath(); i == 0 {
			x.s = NewSender(SenderConfig{Stream: 7, Payload: 512, Queue: 1 << 23}, w.path)
		} else {
			x.s.Add(w.path)
		}
	}
	x.r = NewReceiver(ReceiverConfig{Stream: 7, Window: window, MaxChunk: 1 << 16, GrowWindow: func(n int) bool { return n <= x.room }, Reserve: func(n int) bool {
		if n > x.memory {
			return false
		}
		x.memory -= n
		return true
	}})
	return x
}

// carry puts a frame on a path.
func (w *world) carry(f frame.Frame, by *way, back bool) {
	w.sent++
	if w.draw.Float64() < by.loss {
		return
	}
	times := 1
	if w.draw.Float64() < by.twice {
		times = 2
	}
	for range times {
		at := w.now
		if by.rate > 0 {
			free := &by.free[0]
			if back {
				free = &by.free[1]
			}
			gap := time.Second / time.Duration(by.rate)
			if free.Sub(w.now) > time.Duration(by.queue)*gap {
				return
			}
			at = later(*free, w.now).Add(gap)
			*free = at
		}
		at = at.Add(by.least)
		if by.more > 0 {
			at = at.Add(time.Duration(w.draw.Int64N(int64(by.more))))
		}
		heap.Push(&w.under, underway{at, w.sent, f.AppendTo(nil), by, back})
	}
}

// drop stops the use of a path, which is not the last one.
func (w *world) drop(i int) {
	w.s.Drop(w.ways[i].path, w.now)
	w.ways = slices.Delete(w.ways, i, i+1)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// step processes the next event; it returns false if there is none.
func (w *world) step() bool {
	for _, by := range w.ways {
		for _, d := range w.s.Send(by.path, w.now, 1<<10) {
			if d.Number >= w.r.next+uint64(w.r.Window) && w.r.next > 0 {
				w.t.Fatalf("frame %d is sent, with room until %d", d.Number, w.r.next+uint64(w.r.Window))
			}
			w.carry(&d, by, false)
			by.frames++
		}
		if q, ask := w.s.Query(by.path); ask {
			w.carry(&q, by, false)
		}
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
		w.s.Heard(u.by.path)
	case *frame.StreamData:
		all, err := w.r.Data(f)
		w.take(u.by, all, err)
	case *frame.StreamQuery:
		all, err := w.r.Resume()
		w.take(u.by, all, err)
	}
	return true
}

// take takes over the received chunks, some of them later, and answers by a path.
func (w *world) take(by *way, all []Chunk, err error) {
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
	w.carry(&a, by, true)
}

// whole is an address of a header.
func whole(n byte) frame.Address { return frame.Address{GUID: frame.GUID{19: n}} }
