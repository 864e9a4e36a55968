package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// A receiver that moves from one link to another during a transfer, and is absent for a while, gets
// all chunks once and in order.
func TestReceiverMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSegment(0.01), newSegment(0.01)
		a, _ := runHost(t, Options{Keep: time.Hour}, 10, one, two)
		at := one // where the receiver is; nil for nowhere
		mac := byte(20)
		var mu sync.Mutex
		b, _ := runHost(t, Options{Interfaces: []string{"eth0"}, Open: func(string) (*Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			if at == nil {
				return nil, errors.New("nowhere")
			}
			return at.plug(mac, 1500), nil
		}}, 20)
		from, to := attach(t, a, 1), attach(t, b, 2)
		move := func(s *segment) {
			mu.Lock()
			at = s
			mu.Unlock()
			b.mu.Lock()
			i := b.links[1].Interface
			b.mu.Unlock()
			_ = i.Close()
		}
		const chunks, size = 200, 20_000
		became := make(chan error, chunks)
		go func() {
			for i := range chunks {
				if err := from.Send(t.Context(), to.Name, 0, random(size, uint64(i)), func(err error) { became <- err }); err != nil {
					became <- err
				}
			}
		}()
		for i := range chunks {
			switch i {
			case 50:
				move(two)
			case 100:
				move(nil)
				pause.For(20*time.Second, "the receiver is nowhere")
				move(one)
			case 150:
				mu.Lock()
				mac = 30
				mu.Unlock()
				move(two)
			}
			if r := receive(t, to); !bytes.Equal(r.Payload, random(size, uint64(i))) {
				t.Fatalf("chunk %d is another one", i)
			}
		}
		for range chunks {
			if err := <-became; err != nil {
				t.Error(err)
			}
		}
		pause.For(time.Minute, "what is sent twice would come")
		nothingMore(t, to)
	})
}

// A host is plugged into another switch, whose port drops the first frames. The labels of the old
// path no longer lead to it. Chunks arrive soon after the port forwards frames, whether both hosts
// send or only one.
func TestOtherSwitch(t *testing.T) {
	type direction struct{ there, back bool }
	for _, d := range []direction{{there: true}, {back: true}, {true, true}} {
		for _, away := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond} {
			for _, deaf := range []time.Duration{0, 15 * time.Millisecond, 45 * time.Millisecond} {
				t.Run(fmt.Sprintf("%+v, away for %v, port deaf for %v", d, away, deaf), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var label atomic.Uint32 // of the paths to both hosts; zero while one is away
						label.Store(5)
						s := newSegment(0)
						s.edit = func(b []byte) []byte {
							if tag := uint32(b[13]); label.Load() == 0 || tag != 0 && tag != label.Load() {
								return nil
							}
							switch f, _ := frame.Parse(b[14:]); f := f.(type) {
							case *frame.PathRequest:
								f.Forth, f.Back, f.Lease = uint16(label.Load()), uint16(label.Load()), 60_000
								return f.AppendTo(b[:14:14])
							case *frame.Hello: // the controller announces it to those that send to the name
								copy(b, []byte{2, 0, 0, 0, 0, 30 - b[11]})
							}
							return b
						}
						ha, _ := runHost(t, Options{}, 10, s)
						hb, _ := runHost(t, Options{}, 20, s)
						a, b := attach(t, ha, 1), attach(t, hb, 2)
						var receivers []*Endpoint
						if d.there {
							defer keepSending(t, a, b)()
							receivers = append(receivers, b)
						}
						if d.back {
							defer keepSending(t, b, a)()
							receivers = append(receivers, a)
						}
						receiveAll := func() {
							for _, e := range receivers {
								receive(t, e)
							}
						}
						for range 500 {
							receiveAll()
						}
						label.Store(0)
						pause.For(away, "the host is unplugged")
						discard(receivers...)
						hb.mu.Lock()
						hb.links[1].connected()
						hb.mu.Unlock()
						pause.For(deaf, "the switch's port is not up yet")
						label.Store(6)
						began := time.Now()
						receiveAll()
						if took := time.Since(began); took > 50*time.Millisecond {
							t.Errorf("chunks arrive %v after the port is up", took)
						}
					})
				})
			}
		}
	}
}

// discard drops the chunks that have arrived.
func discard(all ...*Endpoint) {
	for _, e := range all {
		for e.next() != nil {
		}
	}
}

// keepSending has an endpoint send small chunks to another until stop is called.
func keepSending(t *testing.T, from, to *Endpoint) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for from.Send(ctx, to.Name, 0, random(1000, 1), func(error) {}) == nil && ctx.Err() == nil {
			pause.For(5*time.Millisecond, "the application sends at a rate")
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// nothingMore checks that there are no further chunks.
func nothingMore(t *testing.T, e *Endpoint) {
	t.Helper()
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	if len(e.inbox) > 0 {
		t.Errorf("%d chunks more", len(e.inbox))
	}
}

// A sender that moves keeps its stream.
func TestSenderMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSegment(0), newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Hour}, 10, one, two)
		b, _ := runHost(t, Options{}, 20, one, two)
		from, to := attach(t, a, 1), attach(t, b, 2)
		for i := range 20 {
			send(t, from, to.Name, random(100_000, uint64(i)))
		}
		for i := range 20 {
			if i == 5 || i == 10 {
				a.mu.Lock()
				l := a.outgoing[streamKey{from: from.Name, to: to.Name}].path.link
				a.mu.Unlock()
				_ = l.Interface.Close()
			}
			if r := receive(t, to); !bytes.Equal(r.Payload, random(100_000, uint64(i))) {
				t.Fatalf("chunk %d is another one", i)
			}
		}
		synctest.Wait()
		nothingMore(t, to)
	})
}

// A stream that has begun on one interface continues on another with smaller frames.
func TestSmallerFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSegment(0), newSegment(0)
		two.delay = time.Millisecond
		var mu sync.Mutex
		on := map[string]*segment{"eth0": one, "eth1": two}
		mtu := map[string]int{"eth0": 9000, "eth1": 1500}
		open := func(mac byte) func(string) (*Interface, error) {
			return func(name string) (*Interface, error) {
				mu.Lock()
				defer mu.Unlock()
				if on[name] == nil {
					return nil, errors.New("gone")
				}
				return on[name].plug(mac+name[3], mtu[name]), nil
			}
		}
		names := []string{"eth0", "eth1"}
		a, _ := runHost(t, Options{Interfaces: names, Open: open(10)}, 0)
		b, _ := runHost(t, Options{Interfaces: names, Open: open(20)}, 0)
		from, to := attach(t, a, 1), attach(t, b, 2)
		largest := 0
		one.watch(func(f []byte) { largest = max(largest, len(f)) })
		for i := range 10 {
			send(t, from, to.Name, random(300_000, uint64(i)))
			if i == 5 {
				synctest.Wait()
				mu.Lock()
				delete(on, "eth0")
				mu.Unlock()
				for _, h := range []*Host{a, b} {
					h.mu.Lock()
					i := h.links[1].Interface
					h.mu.Unlock()
					_ = i.Close()
				}
			}
			if r := receive(t, to); !bytes.Equal(r.Payload, random(300_000, uint64(i))) {
				t.Fatalf("chunk %d is another one", i)
			}
		}
		one.watch(nil)
		if largest != 9014 {
			t.Errorf("the largest frame has %d bytes", largest)
		}
	})
}

// A lost ping is repeated as soon as another path to the name is found.
func TestPingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSegment(0), newSegment(0)
		a, _ := runHost(t, Options{}, 10, one, two)
		b, _ := runHost(t, Options{}, 20, one, two)
		from, to := attach(t, a, 1), attach(t, b, 2)
		if _, err := from.Ping(t.Context(), to.Name); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		l := a.outgoing[streamKey{from: from.Name, to: to.Name}].path.link
		a.mu.Unlock()
		map[byte]*segment{10: one, 11: two}[l.MAC[5]].lose(1)
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { _ = l.Interface.Close() })
		if _, err := from.Ping(t.Context(), to.Name); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > pingRetry/2 {
			t.Errorf("answered after %v", took)
		}
	})
}

// A receiver that is unplugged, and back at the same place or at another one, gets chunks again as
// soon as it has said hello, and so do those that it sends to: however long each has been silent,
// nobody waits for a timer. Each direction needs no more than a round of retransmissions.
func TestUnplugged(t *testing.T) {
	for name, to := range map[string]byte{"the same place": 20, "elsewhere": 30} {
		for _, away := range []time.Duration{30 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
			t.Run(fmt.Sprint(name, " after ", away), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSegment(0)
					var unplugged atomic.Bool
					var mac atomic.Uint32
					mac.Store(20)
					s.edit = func(b []byte) []byte {
						if unplugged.Load() {
							return nil
						}
						return b
					}
					a, _ := runHost(t, Options{}, 10, s)
					b, _ := runHost(t, Options{Open: func(string) (*Interface, error) { return s.plug(byte(mac.Load()), 1500), nil }}, 20, s)
					x, y := attach(t, a, 1), attach(t, b, 2)
					defer keepSending(t, x, y)()
					defer keepSending(t, y, x)()
					for range 100 {
						receive(t, x)
						receive(t, y)
					}
					unplugged.Store(true)
					pause.For(away, "it is unplugged")
					discard(x, y)
					b.mu.Lock()
					i, sent := b.links[1].Interface, a.counters.Again+b.counters.Again
					b.mu.Unlock()
					unplugged.Store(false)
					began := time.Now()
					if mac.Store(uint32(to)); to != 20 {
						_ = i.Close()
						b.links[1].notifyChanged()
					} else {
						b.mu.Lock()
						b.links[1].connected()
						b.mu.Unlock()
					}
					receive(t, x)
					receive(t, y)
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("chunks arrive %v after the link has come up, with %d frames sent again", took, a.counters.Again+b.counters.Again-sent)
					}
				})
			})
		}
	}
}
