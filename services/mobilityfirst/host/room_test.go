package host

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
)

// A host with more names than are remembered of one place finds others by each of them.
func TestMoreNamesThanAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		to := attach(t, b, 2)
		for i := range 2 * maxNamesPerPlace {
			from, err := a.Attach(numbered(1000 + i))
			if err != nil {
				t.Fatal(err)
			}
			became := send(t, from, to.Name, []byte{byte(i)})
			if r := receive(t, to); r.From != from.Name {
				t.Errorf("from %v", r.From)
			}
			if err := <-became; err != nil {
				t.Fatalf("name %d: %v", i, err)
			}
			from.Close()
			pause.For(100*time.Millisecond, "signatures are limited")
		}
		// Their streams are idle, and make room for a large chunk.
		pause.For(2*pressureTimeout, "streams are silent")
		from, other := attach(t, a, 1), attach(t, b, 3)
		began := time.Now()
		send(t, from, other.Name, make([]byte, MaxChunk))
		if r := receive(t, other); len(r.Payload) != MaxChunk || time.Since(began) > 30*time.Second {
			t.Errorf("%d bytes after %v", len(r.Payload), time.Since(began))
		}
	})
}

// A receiver that takes nothing does not prevent others from reaching other names of its host. What
// is delivered to it, and what it takes out of order, is limited.
func TestReceiverThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: 10 * time.Second}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, idler, other := attach(t, a, 1), attach(t, b, 2), attach(t, b, 3)
		for range 100 {
			if err := from.Send(t.Context(), idler.Name, 0, make([]byte, 1<<20), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		if held := idler.untakenBytes; held > maxUntaken+1<<20 {
			t.Errorf("%d bytes are held", held)
		}
		b.mu.Unlock()
		sender := attach(t, a, 4)
		began := time.Now()
		send(t, sender, other.Name, make([]byte, MaxChunk))
		if r := receive(t, other); len(r.Payload) != MaxChunk || time.Since(began) > 5*time.Second {
			t.Errorf("%d bytes after %v", len(r.Payload), time.Since(began))
		}
		idler.Close()
		pause.For(2*idleTimeout, "idle streams are forgotten")
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.memory.left != b.Memory || idler.untakenBytes != 0 || other.untakenBytes != 0 {
			t.Errorf("%d bytes are left over, %d and %d held", b.Memory-b.memory.left, idler.untakenBytes, other.untakenBytes)
		}
	})
}

// A chunk that is taken over behind one that is not is no longer stored.
func TestTakenBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: 10 * time.Second}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		go func() {
			for range 200 {
				_ = from.Send(t.Context(), to.Name, 0, make([]byte, 1<<20), func(error) {})
			}
		}()
		first, err := to.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			receive(t, to)
		}
		b.mu.Lock()
		if used := b.Memory - b.memory.left; used > maxUntaken+2<<20 {
			t.Errorf("%d bytes are kept", used)
		}
		b.mu.Unlock()
		first.Take()
	})
}

// The unsent chunks of ended applications are limited, and belong to the next one with the name.
func TestLeftToBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Hour}, 10, s)
		for range 100 {
			e := attach(t, a, 1)
			for e.TrySend([20]byte{1}, 0, make([]byte, 1<<20), func(error) {}) == nil {
			}
			e.Close()
		}
		for i := range 100 {
			e, err := a.Attach(numbered(i))
			if err != nil {
				t.Fatal(err)
			}
			for e.TrySend([20]byte{1}, 0, make([]byte, 1<<20), func(error) {}) == nil {
			}
			e.Close()
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		sum := 0
		for _, o := range a.outgoing {
			for _, w := range o.chunks {
				sum += w.bytes
			}
		}
		if a.orphaned != sum || sum > a.Memory || a.queueLeft != 4*a.Memory-sum {
			t.Errorf("%d bytes are left by the books, %d in fact; room for %d", a.orphaned, sum, a.queueLeft)
		}
	})
}

// Streams whose senders report that they are blocked use at most half of their address's memory for
// larger windows, 4 MiB each, and leave half of the total to others.
func TestWidenIsBounded(t *testing.T) {
	h := New(Options{Memory: 64 << 20})
	widest := func(a *account, mtu int) (in *incoming) {
		in = &incoming{host: h, account: a, mtu: mtu, window: window * mtu}
		h.memory.charge(a, in.window)
		for frames := 2 * window; in.growWindow(frames); frames *= 2 {
		}
		return in
	}
	one := h.memory.account(place{h.links[0], openflow.MAC{2, 1}})
	if in := widest(one, 1500); in.window > maxWindowBytes || in.window < maxWindowBytes/2 {
		t.Errorf("one stream takes %d bytes", in.window)
	}
	for range 20 {
		widest(one, 1500)
	}
	if one.bytes > h.share()/2+20*window*1500 {
		t.Errorf("one address takes %d bytes", one.bytes)
	}
	for i := range byte(200) {
		widest(h.memory.account(place{h.links[0], openflow.MAC{2, 2, i}}), 1500)
	}
	if least := h.Memory/2 - 200*window*1500; h.memory.left < least {
		t.Errorf("%d bytes are left of %d", h.memory.left, h.Memory)
	}
}
