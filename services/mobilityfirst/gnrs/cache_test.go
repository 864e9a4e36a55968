package gnrs

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

func cacheOf(t testing.TB, s *Server) *Cache {
	t.Helper()
	c, err := DialCache(s.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A cached answer is updated soon after each change, long before it expires, and concurrent lookups
// of one name share a request.
func TestCacheIsTold(t *testing.T) {
	s := serve(t, Limits{})
	writer, cache := clientOf(t, s), cacheOf(t, s)
	if _, err := cache.Lookup(t.Context(), nameOf(1)); err == nil {
		t.Error("a name is known that nobody has told of")
	}
	for number := uint64(1); number <= 20; number++ {
		if err := writer.Write(t.Context(), sign(t, 1, number, time.Hour)); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second) // keepFor is three times that
		for {
			r, err := cache.Lookup(t.Context(), nameOf(1))
			if err == nil && r.Number == number {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("number %d: %+v, %v", number, r, err)
			}
		}
	}
	before := s.Counters().Lookups
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if r, err := cache.Lookup(t.Context(), nameOf(1)); err != nil || r.Number != 20 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	all.Wait()
	if asked := s.Counters().Lookups - before; asked > 1 {
		t.Errorf("%d questions for what is known", asked)
	}
	if err := cache.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Lookup(t.Context(), nameOf(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// told counts the notifications by address.
type told struct {
	mu sync.Mutex
	to map[netip.AddrPort]int
}

func (x *told) send(to netip.AddrPort, m *gnrswire.Message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, is := changedName(m); is {
		x.to[to]++
	}
}

// A watcher is notified of a change until it asks again, a few times at most, and not after its
// time has ended.
func TestWatches(t *testing.T) {
	x := &told{to: map[netip.AddrPort]int{}}
	w, now, name := newWatches(x.send), time.Now(), nameOf(1)
	at := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 9) }
	asks := func(n byte) {
		if !w.add(name, at(n), uint32(n), now, maxAnswerLifetime) {
			t.Errorf("%d finds no room", n)
		}
	}
	for n := range byte(3) {
		asks(n)
	}
	w.notify(name, 0, now)
	asks(0)
	for times := range repeatDelays {
		w.notify(name, times+1, now)
	}
	if x.to[at(0)] != 1 || x.to[at(1)] != 1+len(repeatDelays) || w.total != 1 {
		t.Errorf("told %v; %d watch", x.to, w.total)
	}
	if w.notify(name, 0, now.Add(maxAnswerLifetime+time.Second)) || w.total != 0 || len(w.byName) != 0 || len(w.perAddress) != 0 {
		t.Errorf("after its time %+v watch", w.byName)
	}
}

// Changes of a name are combined into one notification until that has been sent.
func TestChangesAreToldTogether(t *testing.T) {
	w, name := newWatches(nil), nameOf(1)
	w.nameChanged(name) // nobody watches it
	w.add(name, netip.MustParseAddrPort("192.0.2.1:9"), 1, time.Now(), maxAnswerLifetime)
	for range 2 * maxChanged {
		w.nameChanged(name)
	}
	if n := len(w.changed); n != 1 {
		t.Errorf("%d changes are to be told", n)
	}
}

// Watches are limited by name, by address and in total, and expired ones make room.
func TestWatchesAreBounded(t *testing.T) {
	w, now := newWatches(nil), time.Now()
	name := func(n int) frame.GUID { return frame.GUID{byte(n >> 16), byte(n >> 8), byte(n)} }
	one := netip.MustParseAddrPort("192.0.2.1:9")
	for n := range maxWatchesPerAddress + 10 {
		if got := w.add(name(n), one, 1, now, maxAnswerLifetime); got != (n < maxWatchesPerAddress) {
			t.Fatalf("name %d of an address: %v", n, got)
		}
	}
	for port := range uint16(10) {
		if got := w.add(name(1<<21), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), 100+port), 1, now, maxAnswerLifetime); got != (port < maxPortsPerName) {
			t.Fatalf("program %d of an address: %v", port, got)
		}
	}
	for n := range maxWatchesPerName + 10 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 9)
		if got := w.add(name(1<<20), from, 1, now, maxAnswerLifetime); got != (n < maxWatchesPerName) {
			t.Fatalf("address %d of a name: %v", n, got)
		}
	}
	for n := w.total; n <= maxWatches; n++ {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}), 9)
		if got := w.add(name(n), from, 1, now, maxAnswerLifetime); got != (n < maxWatches) {
			t.Fatalf("watch %d: %v", n, got)
		}
	}
	if !w.add(name(1), netip.MustParseAddrPort("203.0.113.1:9"), 1, now.Add(maxAnswerLifetime+time.Second), maxAnswerLifetime) || w.total != 1 {
		t.Errorf("%d watch when the time of all is over", w.total)
	}
}
