package host

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Names of one host reach each other, even if no interface is up.
func TestNamesOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := runHost(t, Options{Interfaces: []string{"eth0"}, Open: func(string) (*Interface, error) { return nil, errors.New("down") }}, 0)
		from, to := attach(t, h, 1), attach(t, h, 2)
		for i := range 20 {
			became := send(t, from, to.Name, random(i*100_000, uint64(i)))
			if r := receive(t, to); !bytes.Equal(r.Payload, random(i*100_000, uint64(i))) {
				t.Errorf("chunk %d is another one", i)
			}
			if err := <-became; err != nil {
				t.Error(err)
			}
		}
	})
}

// A ping is answered by the host of a name, and not at all for an absent name.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		for range 3 {
			if took, err := from.Ping(t.Context(), to.Name); err != nil || took != 2*s.delay {
				t.Errorf("%v, %v", took, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := from.Ping(ctx, frame.GUID{1}); err == nil {
			t.Error("somebody has answered")
		}
	})
}

// The chunks of a name in flight are limited; further ones are refused until some are taken over.
// Chunks that cannot be sent do not prevent others from being sent.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Hour}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, other, to := attach(t, a, 1), attach(t, a, 3), attach(t, b, 2)
		absent := record.NameOfOwner(newKey(9))
		nothing := func(error) {}
		n := 0
		for from.TrySend(absent, 0, make([]byte, 1<<20), nothing) == nil {
			n++
		}
		if n != MaxQueued/(1<<20+overhead) {
			t.Errorf("%d MiB", n)
		}
		if err := from.TrySend(absent, 0, make([]byte, 1<<20), nothing); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		if err := from.TrySend(absent, 0, make([]byte, MaxChunk+1), nothing); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		send(t, other, to.Name, []byte("another"))
		if r := receive(t, to); string(r.Payload) != "another" {
			t.Errorf("%q", r.Payload)
		}
	})
}

// Two names that send each other more than either queue holds both receive everything.
func TestBothSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		x, y := attach(t, a, 1), attach(t, b, 2)
		const chunks = 40
		for _, pair := range [][2]*Endpoint{{x, y}, {y, x}} {
			go func() {
				for range chunks {
					if err := pair[0].Send(t.Context(), pair[1].Name, 0, make([]byte, 1<<20), func(error) {}); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		for range chunks {
			receive(t, x)
			receive(t, y)
		}
	})
}

// A receiver that takes the last chunk over and ends immediately has taken it over, as its sender
// learns.
func TestTakenAtTheEnd(t *testing.T) {
	for loss := range 3 { // no, the first, or the second of its last frames is lost
		synctest.Test(t, func(t *testing.T) {
			s := newSegment(0)
			a, _ := runHost(t, Options{}, 10, s)
			b, _ := runHost(t, Options{}, 20, s)
			from, to := attach(t, a, 1), attach(t, b, 2)
			became := send(t, from, to.Name, []byte("last"))
			r, err := to.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.lose(loss)
			r.Take()
			to.Close()
			began := time.Now()
			if err := <-became; err != nil || time.Since(began) > 3*time.Second {
				t.Errorf("%d frames lost: %v after %v", loss, err, time.Since(began))
			}
		})
	}
}

// Chunks that a receiver has taken over out of order are not delivered to the next one; the others
// are.
func TestTakenOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		for i := range byte(6) {
			send(t, from, to.Name, []byte{i})
		}
		for i := range 4 {
			r, err := to.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 || i == 3 {
				r.Take()
			}
		}
		to.Close()
		to = attach(t, b, 2)
		for _, want := range []byte{0, 2, 4, 5} {
			if r := receive(t, to); r.Payload[0] != want {
				t.Errorf("chunk %d, want %d", r.Payload[0], want)
			}
		}
		synctest.Wait()
		nothingMore(t, to)
	})
}

// The answer of a host whose clock was set back is accepted.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, stop := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		a.mu.Lock()
		from.number += uint64(time.Hour)
		clear(from.hellos)
		a.mu.Unlock()
		send(t, from, to.Name, []byte("before"))
		receive(t, to)
		synctest.Wait()
		stop()
		a, _ = runHost(t, Options{}, 10, s)
		from = attach(t, a, 1)
		began := time.Now()
		send(t, from, to.Name, []byte("after"))
		if r := receive(t, to); string(r.Payload) != "after" || time.Since(began) > 5*time.Second {
			t.Errorf("%q after %v", r.Payload, time.Since(began))
		}
	})
}
