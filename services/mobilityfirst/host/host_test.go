package host

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// segment is an Ethernet switch in memory, whose frames take some time, or are lost.
type segment struct {
	mu    sync.Mutex
	ports map[openflow.MAC]*port
	loss  float64
	delay time.Duration // how long a frame takes
	gap   time.Duration // how long after another it can follow, zero for at once
	free  time.Time     // when the next can
	draw  *rand.Rand
	seen  func(b []byte)        // each frame
	edit  func(b []byte) []byte // each frame, as it goes on; nil if it does not
	lost  int                   // how many are still to be lost
}

func newSegment(loss float64) *segment {
	return &segment{ports: map[openflow.MAC]*port{}, loss: loss, delay: 100 * time.Microsecond, draw: rand.New(rand.NewPCG(1, 2))}
}

// watch calls a function with each frame.
func (s *segment) watch(f func([]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = f
}

// lose drops the next frames.
func (s *segment) lose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = n
}

// port is a port of a segment, with the interface that is connected to it.
type port struct {
	mac     openflow.MAC
	segment *segment
	came    chan timed
	closed  chan struct{}
	once    sync.Once
}

type timed struct {
	bytes []byte
	at    time.Time
}

// plug opens an interface on a segment.
func (s *segment) plug(mac byte, mtu int) *Interface {
	p := &port{mac: openflow.MAC{2, 0, 0, 0, 0, mac}, segment: s, came: make(chan timed, 4096), closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[p.mac] = p
	return &Interface{MAC: p.mac, MTU: mtu, Socket: p}
}

func (p *port) AppendHeader(b []byte, to openflow.MAC, label uint16) []byte {
	return append(append(append(b, to[:]...), p.mac[:]...), byte(label>>8), byte(label))
}

func (p *port) Send(frames [][]byte) error {
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	if p.segment.ports[p.mac] != p {
		return errors.New("unplugged")
	}
	for _, f := range frames {
		p.segment.carry(p, f)
	}
	return nil
}

func (s *segment) carry(from *port, f []byte) {
	if s.seen != nil {
		s.seen(f)
	}
	if s.lost > 0 {
		s.lost--
		return
	}
	if s.edit != nil {
		if f = s.edit(f); f == nil {
			return
		}
	}
	at := time.Now()
	if s.gap > 0 {
		if s.free.After(at) {
			at = s.free
		}
		at = at.Add(s.gap)
		s.free = at
	}
	to := openflow.MAC(f)
	for mac, p := range s.ports {
		if p == from || to != broadcast && to != mac || s.draw.Float64() < s.loss {
			continue
		}
		select {
		case p.came <- timed{bytes.Clone(f), at.Add(s.delay)}:
		default: // as a queue that is full
		}
	}
}

func (p *port) Receive(ctx context.Context) (all []rawlink.Frame, err error) {
	for {
		select {
		case f := <-p.came:
			pause.For(time.Until(f.at), "a frame is under way")
			all = append(all, rawlink.Frame{From: openflow.MAC(f.bytes[6:]), Group: group(openflow.MAC(f.bytes)), Label: uint16(f.bytes[12])<<8 | uint16(f.bytes[13]), Payload: f.bytes[14:]})
			if len(all) < 64 && len(p.came) > 0 {
				continue
			}
			return all, nil
		case <-p.closed:
			return nil, errors.New("unplugged")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close disconnects the interface.
func (p *port) Close() error {
	p.once.Do(func() {
		p.segment.mu.Lock()
		defer p.segment.mu.Unlock()
		close(p.closed)
		if p.segment.ports[p.mac] == p {
			delete(p.segment.ports, p.mac)
		}
	})
	return nil
}

// runHost runs a host with interfaces on segments until the test ends.
func runHost(t *testing.T, o Options, mac byte, segments ...*segment) (h *Host, stop func()) {
	t.Helper()
	for i := range segments {
		o.Interfaces = append(o.Interfaces, fmt.Sprint("eth", i))
	}
	if o.Open == nil {
		o.Open = func(name string) (*Interface, error) {
			i := name[3] - '0'
			return segments[i].plug(mac+i, 1500), nil
		}
	}
	h = New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	synctest.Wait() // its links are open
	return h, stop
}

func newKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func attach(t *testing.T, h *Host, seed byte) *Endpoint {
	t.Helper()
	e, err := h.Attach(newKey(seed))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// send sends a chunk and returns its result.
func send(t *testing.T, e *Endpoint, to frame.GUID, payload []byte) <-chan error {
	t.Helper()
	became := make(chan error, 1)
	if err := e.Send(t.Context(), to, 0, payload, func(err error) { became <- err }); err != nil {
		t.Fatal(err)
	}
	return became
}

// receive receives a chunk and takes it over.
func receive(t *testing.T, e *Endpoint) *Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := e.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.Take()
	return r
}

// random returns distinguishable bytes.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// Chunks of all sizes arrive, once and in order, whatever is lost, and leave no state.
func TestChunksArrive(t *testing.T) {
	for _, loss := range []float64{0, 0.05, 0.3} {
		synctest.Test(t, func(t *testing.T) {
			s := newSegment(loss)
			a, _ := runHost(t, Options{Keep: time.Hour}, 10, s)
			b, _ := runHost(t, Options{}, 20, s)
			from, to := attach(t, a, 1), attach(t, b, 2)
			sizes := []int{0, 1, 1000, 1418, 1419, 100_000, 3 << 20, 5, 0}
			var became []<-chan error
			go func() {
				for i, n := range sizes {
					became = append(became, send(t, from, to.Name, random(n, uint64(i))))
				}
			}()
			for i, n := range sizes {
				if r := receive(t, to); r.From != from.Name || !bytes.Equal(r.Payload, random(n, uint64(i))) {
					t.Errorf("loss %v: chunk %d: %d bytes from %v, want %d", loss, i, len(r.Payload), r.From, n)
				}
			}
			synctest.Wait()
			for i, c := range became {
				if err := <-c; err != nil {
					t.Errorf("loss %v: chunk %d: %v", loss, i, err)
				}
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if o := a.outgoing[streamKey{from: from.Name, to: to.Name}]; len(o.chunks) != 0 || o.sender.Queued() != 0 {
				t.Errorf("loss %v: %d chunks are left, %d bytes", loss, len(o.chunks), o.sender.Queued())
			}
		})
	}
}

// The names of one machine have one place, which it keeps when it restarts and shares with no other.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		first, stop := runHost(t, Options{}, 1, s)
		other, _ := runHost(t, Options{}, 2, s)
		receiver, _ := runHost(t, Options{}, 3, s)
		to := attach(t, receiver, 9)
		place := func(from *Endpoint) hostapi.Place {
			t.Helper()
			sent := send(t, from, to.Name, []byte("payload"))
			r := receive(t, to)
			r.Take()
			if err := <-sent; err != nil || r.From != from.Name {
				t.Fatalf("a chunk from %v, want %v: %v", r.From, from.Name, err)
			}
			return r.Place()
		}
		one, two, three, local := place(attach(t, first, 1)), place(attach(t, first, 2)), place(attach(t, other, 3)), place(attach(t, receiver, 4))
		if one == 0 || one != two || three == 0 || three == one || local == 0 || local == one || local == three {
			t.Errorf("two names of a host are at %x and %x, one of another at %x, one of the receiver's at %x", one, two, three, local)
		}
		stop()
		first, _ = runHost(t, Options{}, 1, s)
		if again := place(attach(t, first, 5)); again != one {
			t.Errorf("a host that has been at %x is at %x after a restart", one, again)
		}
	})
}

// A chunk for an absent name is kept for its time. It arrives if its receiver comes meanwhile.
func TestNobodyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Minute}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from := attach(t, a, 1)
		began := time.Now()
		if err := <-send(t, from, frame.GUID{1}, nil); !errors.Is(err, ErrKept) || time.Since(began) < time.Minute || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		later := send(t, from, endpointName(2), []byte("later"))
		pause.For(30*time.Second, "the receiver is not there yet")
		began = time.Now()
		to := attach(t, b, 2)
		if r := receive(t, to); string(r.Payload) != "later" || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%q after %v", r.Payload, time.Since(began))
		}
		if err := <-later; err != nil {
			t.Error(err)
		}
	})
}

// A receiver that restarts gets what its predecessor has not taken over.
func TestReceiverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, stop := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		for i := range byte(5) {
			send(t, from, to.Name, []byte{i})
		}
		for i := range byte(2) {
			if r := receive(t, to); r.Payload[0] != i {
				t.Errorf("chunk %d: %v", i, r.Payload)
			}
		}
		if _, err := to.Receive(t.Context()); err != nil { // and does not take it
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		if _, err := to.Receive(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		pause.For(20*time.Second, "the receiver is away")
		b, _ = runHost(t, Options{}, 20, s)
		to = attach(t, b, 2)
		for i := byte(2); i < 5; i++ {
			if r := receive(t, to); r.Payload[0] != i {
				t.Errorf("chunk %d: %v", i, r.Payload)
			}
		}
	})
}

func endpointName(seed byte) frame.GUID {
	e, err := New(Options{}).Attach(newKey(seed))
	if err != nil {
		panic(err)
	}
	return e.Name
}
