package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
	"github.com/sluice-net/sluice/services/mobilityfirst/mf1test"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// nameOf returns the name by which others know a host.
func nameOf(n byte) frame.GUID { return record.NameOfOwner(keyOf(n)) }

// chunks returns chunks of many sizes, the same for the same seed.
func chunks(seed uint64) (all [][]byte) {
	r := rand.New(rand.NewPCG(seed, seed))
	for _, size := range []int{0, 1, mtu - dataOverhead - 84, mtu - dataOverhead - 83, 1, 100_000, 12_345, 1_500_000, 7} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		all = append(all, b)
	}
	return all
}

// wantOurs checks that chunks arrive at a host of Sluice, in order and once each.
func wantOurs(ctx context.Context, c *hostapi.Client, from frame.GUID, want [][]byte) error {
	for i, b := range want {
		x, err := c.Receive(ctx)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		if x.From != from || !bytes.Equal(x.Payload, b) {
			return fmt.Errorf("chunk %d: %d bytes from %v with sum %x, want %d from %v", i, len(x.Payload), x.From, sha256.Sum256(x.Payload), len(b), from)
		}
		if err := c.Take(x); err != nil {
			return err
		}
	}
	return nil
}

// wantOriginal checks the same at a host of the original release.
func wantOriginal(ctx context.Context, h *mf1test.Host, from frame.GUID, first uint32, want [][]byte) error {
	for i, b := range want {
		x, err := h.Receive(ctx)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		if x.Routing.Source.GUID != from || x.Routing.Destination.GUID != h.GUID || !bytes.Equal(x.Payload, b) {
			return fmt.Errorf("chunk %d: %d bytes from %v to %v, want %d from %v", i, len(x.Payload), x.Routing.Source.GUID, x.Routing.Destination.GUID, len(b), from)
		}
		if x.Transport.Sequence != first+uint32(i) {
			return fmt.Errorf("chunk %d has number %d", i, x.Transport.Sequence)
		}
	}
	return nil
}

// sendOriginal sends chunks from a host of the original release, one after the other.
func sendOriginal(ctx context.Context, h *mf1test.Host, to frame.GUID, all [][]byte) error {
	for i, b := range all {
		if err := h.Send(ctx, to, 0, b); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
	}
	return nil
}

// sendOurs sends chunks from a host of Sluice, and waits until they are taken over.
func sendOurs(ctx context.Context, c *hostapi.Client, to frame.GUID, all [][]byte) error {
	became := make(chan error, len(all))
	for _, b := range all {
		if err := c.Send(ctx, to, 0, b, func(err error) { became <- err }); err != nil {
			return err
		}
	}
	for i := range all {
		if err := <-became; err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
	}
	return nil
}

// Chunks between hosts of both kinds, and between two of the original release, arrive once,
// unchanged and in order, even if the Ethernet loses, repeats and reorders frames.
func TestExchange(t *testing.T) {
	for name, x := range map[string]trouble{"good": {}, "lossy": {lose: 15}, "repeats": {repeat: 40}, "bad": {lose: 10, repeat: 10, hold: 20}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, x, Options{})
			one, _ := w.original(1)
			two, _ := w.original(2)
			ours := w.ours(9)
			ctx, results := w.patiently(), make(chan error, 8)
			for _, f := range []func() error{
				func() error { return sendOriginal(ctx, one, ours.Name, chunks(1)) },
				func() error { return wantOurs(ctx, ours, nameOf(1), chunks(1)) },
				func() error { return sendOriginal(ctx, two, guidOf(1), chunks(2)) },
				func() error { return wantOriginal(ctx, one, guidOf(2), 0, chunks(2)) },
				func() error { return sendOurs(ctx, ours, nameOf(2), chunks(3)) },
				func() error { return wantOriginal(ctx, two, ours.Name, 0, chunks(3)) },
			} {
				go func() { results <- f() }()
			}
			for range 6 {
				if err := <-results; err != nil {
					t.Fatal(err)
				}
			}
			pause.For(200*time.Millisecond, "nothing comes twice")
			w.until("all to be taken", func() bool { c := w.Counters(); return c.Taken == uint64(2*len(chunks(1))) && c.Bytes == 0 })
			for _, h := range []*mf1test.Host{one, two} {
				now, cancel := context.WithCancel(ctx)
				cancel()
				if x, err := h.Receive(now); err == nil && len(x.Payload) > 0 {
					t.Errorf("%d bytes have come twice", len(x.Payload))
				}
			}
		})
	}
}

// The largest chunk can be sent in both directions.
func TestLargest(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	one, _ := w.original(1)
	ours, ctx := w.ours(9), w.patiently()
	largest := [][]byte{bytes.Repeat([]byte("chunk"), hostapi.MaxChunk/5)}
	for _, f := range [][2]func() error{
		{func() error { return sendOriginal(ctx, one, ours.Name, largest) }, func() error { return wantOurs(ctx, ours, nameOf(1), largest) }},
		{func() error { return sendOurs(ctx, ours, nameOf(1), largest) }, func() error { return wantOriginal(ctx, one, ours.Name, 0, largest) }},
	} {
		sent := make(chan error, 1)
		go func() { sent <- f[0]() }()
		if err := errors.Join(f[1](), <-sent); err != nil {
			t.Fatal(err)
		}
	}
}

// reached reports whether a name answers.
func reached(c *hostapi.Client, name frame.GUID) bool {
	_, err := c.Ping(name, 200*time.Millisecond)
	return err == nil
}

// attached reports whether the name of a host is attached, so that no other can attach it.
func (w *world) attached(n byte) bool {
	c, err := hostapi.Open(w.Context(), w.socket, keyOf(n))
	if err != nil {
		return true
	}
	if err := c.Close(); err != nil {
		w.Error(err)
	}
	return false
}

// A name is attached while its host is present: from its first probe until it de-associates or is
// silent; a host with nothing to send is probed. The chunks of a host that has left are still sent.
func TestPresence(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Silent: time.Second})
	ours := w.ours(9)
	if reached(ours, nameOf(1)) {
		t.Fatal("a host is there that has never been heard")
	}
	one, stop := w.original(1)
	w.until("the name to be attached", func() bool { return reached(ours, nameOf(1)) })
	pause.For(2*time.Second, "the host says nothing by itself")
	if !w.attached(1) {
		t.Error("the host is there, has nothing to say, and is taken to be gone")
	}
	one.Ignore(true)
	w.until("the silent host to be gone", func() bool { return !w.attached(1) })
	one.Ignore(false)
	w.greet(one)
	w.until("the host to be back", func() bool { return w.attached(1) })

	away := keyOf(8)
	ctx := w.patiently()
	if err := sendOriginal(ctx, one, record.NameOfOwner(away), chunks(1)[:6]); err != nil {
		t.Fatal(err)
	}
	if err := one.Deassociate(); err != nil {
		t.Fatal(err)
	}
	stop()
	w.until("the host to be gone", func() bool { return !w.attached(1) })
	w.until("its chunks to be left with the host of ours", func() bool { c := w.Counters(); return c.Left == 6 && c.There == 0 })
	if err := wantOurs(ctx, hosttest.Open(t, w.socket, away), nameOf(1), chunks(1)[:6]); err != nil {
		t.Error(err)
	}
}

// A chunk for an absent destination is kept until the destination is present or its time has ended,
// and does not delay others.
func TestKeep(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Keep: 4 * time.Second})
	one, _ := w.original(1)
	ours, ctx := w.ours(9), w.patiently()
	never, later := nameOf(8), keyOf(7)
	for _, to := range []frame.GUID{never, record.NameOfOwner(later), ours.Name} {
		if err := sendOriginal(ctx, one, to, chunks(1)[:7]); err != nil {
			t.Fatal(err)
		}
	}
	if err := wantOurs(ctx, ours, nameOf(1), chunks(1)[:7]); err != nil {
		t.Error(err)
	}
	if err := wantOurs(ctx, hosttest.Open(t, w.socket, later), nameOf(1), chunks(1)[:7]); err != nil {
		t.Error(err)
	}
	w.until("the others to be given up", func() bool {
		c := w.Counters()
		return c.Expired == 7 && c.Taken == 14 && c.Chunks == 0 && c.Bytes == 0
	})
}

// A host that restarts uses its earlier hop IDs for other chunks.
func TestRestart(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	ours, ctx := w.ours(9), w.patiently()
	for life := range uint64(3) {
		one, stop := w.original(1)
		if err := sendOriginal(ctx, one, ours.Name, chunks(life)[:3]); err != nil {
			t.Fatal(err)
		}
		if err := wantOurs(ctx, ours, nameOf(1), chunks(life)[:3]); err != nil {
			t.Fatal(err)
		}
		w.until("them to be taken", func() bool { return w.Counters().Bytes == 0 })
		half := bytes.Repeat([]byte{byte(life)}, mtu-dataOverhead)
		if err := one.Tell(routerMAC, &frame.CSYN{Hop: 1000, Packets: 2}, &frame.Data{Hop: 1000, Sequence: uint32(life) % 2, Payload: half}); err != nil {
			t.Fatal(err)
		}
		w.until("a half chunk", func() bool { return w.Counters().Bytes > 0 })
		stop()
	}
	if c := w.Counters(); c.Taken != 9 || c.Invalid != 0 {
		t.Errorf("%+v", c)
	}
}

// waiting makes a host send chunks to a name that is not attached; arrive attaches it, and reports
// whether they arrive.
func (w *world) waiting() (one *mf1test.Host, later frame.GUID, arrive func()) {
	w.Helper()
	one, _ = w.original(1)
	ctx, key, some := w.patiently(), keyOf(7), chunks(1)[:7]
	if err := sendOriginal(ctx, one, record.NameOfOwner(key), some); err != nil {
		w.Fatal(err)
	}
	return one, record.NameOfOwner(key), func() {
		w.Helper()
		if err := wantOurs(ctx, hosttest.Open(w.T, w.socket, key), nameOf(1), some); err != nil {
			w.Error(err)
		}
	}
}

// Chunks that the host of Sluice has not delivered when it ends are delivered when it runs again.
func TestHostOfOursEnds(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	_, _, arrive := w.waiting()
	w.again()
	arrive()
}

// A router that ends passes its chunks to the host of Sluice.
func TestRouterEnds(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	_, _, arrive := w.waiting()
	w.stop()
	if c := w.Counters(); c.Left != 7 || c.Chunks != 0 {
		t.Errorf("%+v", c)
	}
	arrive()
}

// Chunks for a host that does not take them stay with their senders, and arrive in order when it
// does.
func TestNotTaken(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Silent: patience})
	one, _ := w.original(1)
	ours, ctx := w.ours(9), w.patiently()
	one.Ignore(true)
	sent := make(chan error, 1)
	go func() { sent <- sendOurs(ctx, ours, nameOf(1), chunks(1)) }()
	w.until("the first to be announced", func() bool { return w.announced(1) > 0 })
	if err := one.Deassociate(); err != nil {
		t.Fatal(err)
	}
	one.Ignore(false)
	w.greet(one)
	if err := errors.Join(wantOriginal(ctx, one, ours.Name, 0, chunks(1)), <-sent); err != nil {
		t.Error(err)
	}
}

// Chunks of a host that has left, which the host of Sluice has not delivered when it fails, are
// delivered when it runs again.
func TestHostOfOursFailsBehind(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	one, later, arrive := w.waiting()
	if err := one.Deassociate(); err != nil {
		t.Fatal(err)
	}
	w.until("all to be under way", func() bool {
		w.Router.mu.Lock()
		defer w.Router.mu.Unlock()
		f := w.guests[guidOf(1).Short()].flows[later]
		return f != nil && f.inFlight == 7
	})
	w.again()
	if c := w.Counters(); c.Left != 0 {
		t.Errorf("%+v", c)
	}
	arrive()
	w.until("nothing to be left", func() bool { c := w.Counters(); return c.Taken+c.Left == 7 && c.Bytes == 0 })
}
