package host

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// carried counts the frames with chunks by their destination Ethernet address.
type carried struct {
	mu sync.Mutex
	to map[openflow.MAC]int
}

// count counts the frames of segments.
func count(segments ...*segment) *carried {
	c := &carried{to: map[openflow.MAC]int{}}
	for _, s := range segments {
		s.watch(func(b []byte) {
			if f, err := frame.Parse(b[14:]); err == nil && f.Type() == frame.TypeStreamData {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.to[openflow.MAC(b)]++
			}
		})
	}
	return c
}

// take returns the counts since the last call.
func (c *carried) take() map[openflow.MAC]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.to = map[openflow.MAC]int{} }()
	return c.to
}

// slow is a link that carries 10,000 frames a second.
func slow() *segment {
	s := newSegment(0)
	s.gap = 100 * time.Microsecond
	return s
}

// sendAll sends chunks that may use several paths; wait waits until all are taken over.
func sendAll(t *testing.T, from *Endpoint, to frame.GUID, chunks, size int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Add(chunks)
	taken := func(err error) {
		if err != nil {
			t.Error(err)
		}
		all.Done()
	}
	go func() {
		for i := range chunks {
			if err := from.Send(t.Context(), to, frame.Multihoming, random(size, uint64(i)), taken); err != nil {
				taken(err)
			}
		}
	}()
	return all.Wait
}

// Chunks that may use all links do, between whichever interfaces both hosts have; others use one.
func TestMultihoming(t *testing.T) {
	for name, c := range map[string]struct{ from, to, links int }{
		"two links": {2, 2, 2}, "three links": {3, 3, 3}, "two interfaces of the receiver": {1, 2, 1}, "two of both, on one link": {2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var links []*segment
				for range c.links {
					links = append(links, slow())
				}
				on := func(n int) (all []*segment) {
					for i := range n {
						all = append(all, links[i%len(links)])
					}
					return all
				}
				a, _ := runHost(t, Options{}, 10, on(c.from)...)
				b, _ := runHost(t, Options{}, 20, on(c.to)...)
				from, to := attach(t, a, 1), attach(t, b, 2)
				counted := count(links...)
				send(t, from, to.Name, random(1<<20, 1))
				if receive(t, to); len(counted.take()) != 1 {
					t.Error("an ordinary chunk goes by several ways")
				}
				const chunks, size = 30, 1 << 20
				began, taken := time.Now(), sendAll(t, from, to.Name, chunks, size)
				for i := range chunks {
					if r := receive(t, to); !bytes.Equal(r.Payload, random(size, uint64(i))) {
						t.Fatalf("chunk %d is another one", i)
					}
				}
				taken()
				by := counted.take()
				rate := chunks * size / 1478 / time.Since(began).Seconds() // without the header of the frames
				if t.Logf("%.0f frames a second, to each: %v", rate, by); len(by) != c.to || rate < 0.55*10_000*float64(c.links) {
					t.Errorf("%.0f frames a second to %d interfaces, want to %d nearly what %d links carry", rate, len(by), c.to, c.links)
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				if n := len(a.outgoing[streamKey{from: from.Name, to: to.Name}].paths()); n < max(c.from, c.to) || n >= c.from+c.to {
					t.Errorf("%d ways between %d interfaces and %d", n, c.from, c.to)
				}
			})
		})
	}
}

// When a link dies, silently or visibly for the host, chunks continue on the other immediately, and
// on both again when it returns.
func TestLinkOfSeveralDies(t *testing.T) {
	for name, silently := range map[string]bool{"silently": true, "seen": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := slow(), slow()
				a, _ := runHost(t, Options{}, 10, one, two)
				b, _ := runHost(t, Options{}, 20, one, two)
				from, to := attach(t, a, 1), attach(t, b, 2)
				const chunks, size = 60, 1 << 18
				taken := sendAll(t, from, to.Name, chunks, size)
				last, longest := time.Now(), time.Duration(0)
				for i := range chunks {
					switch {
					case i != 20:
					case silently:
						one.mu.Lock()
						one.edit = func([]byte) []byte { return nil }
						one.mu.Unlock()
					default:
						for _, h := range []*Host{a, b} {
							h.mu.Lock()
							x := h.links[1].Interface
							h.mu.Unlock()
							_ = x.Close()
						}
					}
					if r := receive(t, to); !bytes.Equal(r.Payload, random(size, uint64(i))) {
						t.Fatalf("chunk %d is another one", i)
					}
					longest, last = max(longest, time.Since(last)), time.Now()
				}
				if t.Logf("the longest pause is %v", longest); longest > 100*time.Millisecond {
					t.Errorf("chunks stop for %v", longest)
				}
				taken()
				nothingMore(t, to)
				one.mu.Lock()
				one.edit = nil
				one.mu.Unlock()
				pause.For(2*unlabelledRenewal, "the links are there again")
				counted := count(one, two)
				taken = sendAll(t, from, to.Name, chunks, size)
				for range chunks {
					receive(t, to)
				}
				taken()
				if by := counted.take(); len(by) != 2 {
					t.Errorf("frames go to %v", by)
				}
			})
		})
	}
}

// Two hosts of one name do not receive parts of the same chunks.
func TestMultihomingToOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := slow(), slow()
		a, _ := runHost(t, Options{}, 10, one, two)
		b, _ := runHost(t, Options{}, 20, one)
		c, _ := runHost(t, Options{}, 30, two)
		from, first := attach(t, a, 1), attach(t, b, 2)
		pause.For(time.Second, "the hosts' clocks differ")
		second := attach(t, c, 2)
		const chunks = 30
		counted := count(one, two)
		taken := sendAll(t, from, first.Name, chunks, 1<<18)
		got := make(chan *Endpoint, 2*chunks)
		for _, e := range []*Endpoint{first, second} {
			go func() {
				for {
					r, err := e.Receive(t.Context())
					if err != nil {
						return
					}
					r.Take()
					got <- e
				}
			}()
		}
		who := <-got
		for range chunks - 1 {
			if other := <-got; other != who {
				t.Fatal("both hosts get chunks")
			}
		}
		taken()
		if by := counted.take(); len(by) != 1 {
			t.Errorf("frames go to %v", by)
		}
	})
}

// requestsOn counts the path requests on segments.
func requestsOn(segments ...*segment) *atomic.Int64 {
	var n atomic.Int64
	for _, s := range segments {
		s.watch(func(b []byte) {
			if f, err := frame.Parse(b[14:]); err == nil && f.Type() == frame.TypePathRequest {
				n.Add(1)
			}
		})
	}
	return &n
}

// A stream keeps several paths while it sends little, whichever of them answers first, and requests
// them no more often than necessary.
func TestSeveralWaysStay(t *testing.T) {
	for name, delays := range map[string][2]time.Duration{"the first is longer": {5 * time.Millisecond, time.Millisecond}, "the first is shorter": {time.Millisecond, 5 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := slow(), slow()
				one.delay, two.delay = delays[0], delays[1]
				a, _ := runHost(t, Options{}, 10, one, two)
				b, _ := runHost(t, Options{}, 20, one, two)
				from, to := attach(t, a, 1), attach(t, b, 2)
				asked := requestsOn(one, two)
				const minutes = 5
				for i := range minutes * 60 {
					taken := sendAll(t, from, to.Name, 1, 1000)
					receive(t, to)
					taken()
					pause.For(time.Second, "little is sent")
					a.mu.Lock()
					n := len(a.outgoing[streamKey{from: from.Name, to: to.Name}].paths())
					a.mu.Unlock()
					if n != 2 {
						t.Fatalf("%d ways after %d s", n, i+1)
					}
				}
				if n := asked.Load(); n > 2*(minutes*4+2) {
					t.Errorf("%d requests within %d minutes", n, minutes)
				}
			})
		})
	}
}

// Several paths are requested even if an ordinary chunk has requested one just before, and after
// the receiver has refused a chunk.
func TestSeveralWaysAskedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := slow(), slow()
		a, _ := runHost(t, Options{}, 10, one, two)
		b, _ := runHost(t, Options{}, 20, one, two)
		from, to := attach(t, a, 1), attach(t, b, 2)
		ways := func(what string) {
			t.Helper()
			pause.For(time.Second, "ways are found")
			a.mu.Lock()
			defer a.mu.Unlock()
			if n := len(a.outgoing[streamKey{from: from.Name, to: to.Name}].paths()); n != 2 {
				t.Errorf("%s: %d ways", what, n)
			}
		}
		send(t, from, to.Name, random(1000, 1))
		taken := sendAll(t, from, to.Name, 1, 1000)
		receive(t, to)
		receive(t, to)
		taken()
		ways("pushed while a way was asked for")
		taken = sendAll(t, from, to.Name, 1, 1000)
		r, err := to.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Refuse()
		receive(t, to)
		taken()
		ways("refused")
	})
}

// A host that repeats an answer, with another label, removes no path from a stream.
func TestRepeatedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := slow(), slow()
		a, _ := runHost(t, Options{}, 10, one, two)
		b, _ := runHost(t, Options{}, 20, one, two)
		from, to := attach(t, a, 1), attach(t, b, 2)
		var mu sync.Mutex
		var grant frame.PathGrant
		var by openflow.MAC
		one.watch(func(f []byte) {
			if x, err := frame.Parse(f[14:]); err == nil {
				if g, is := x.(*frame.PathGrant); is {
					mu.Lock()
					defer mu.Unlock()
					grant, by = *g, openflow.MAC(f[6:])
				}
			}
		})
		taken := sendAll(t, from, to.Name, 1, 1000)
		receive(t, to)
		taken()
		mu.Lock()
		grant.Label, grant.Lease = 3000, 60_000
		mu.Unlock()
		for _, after := range []time.Duration{0, 2 * joinTimeout} {
			pause.For(after, "answers are taken, or no more")
			a.handleGrant(place{a.links[1], by}, &grant, time.Now())
			a.mu.Lock()
			for _, p := range a.outgoing[streamKey{from: from.Name, to: to.Name}].paths() {
				if p.tag != 0 {
					t.Errorf("after %v a way has the label %d", after, p.tag)
				}
			}
			a.mu.Unlock()
		}
	})
}
