package gnrs

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

// A cookie is valid at the address that it was sent to, for a while, and at the server that sent
// it.
func TestCookies(t *testing.T) {
	c, now := newCookies(), time.Unix(1_000_000_000, 0)
	mine, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, x := range map[string]struct {
		cookie []byte
		want   bool
		next   bool // the answer contains a cookie
	}{
		"current":            {c.cookie(mine, now), true, false},
		"previous":           {c.cookie(mine, now.Add(-cookieLifetime)), true, true},
		"too old":            {c.cookie(mine, now.Add(-2*cookieLifetime)), false, true},
		"of another address": {c.cookie(other, now), false, true},
		"of another server":  {newCookies().cookie(mine, now), false, true},
		"none yet":           {make([]byte, cookieSize), false, true},
		"too short":          {c.cookie(mine, now)[:8], false, false},
	} {
		m := &gnrswire.Message{Options: []gnrswire.Option{{Kind: optionCookie, Value: x.cookie}}}
		proven, next := c.check(m, mine, now)
		if proven != x.want || (next != nil) != x.next {
			t.Errorf("cookie %s: check = %v, %x, want %v and a cookie: %v", name, proven, next, x.want, x.next)
		}
	}
	if proven, next := c.check(&gnrswire.Message{}, mine, now); proven || next != nil {
		t.Errorf("check without a cookie = %v, %x", proven, next)
	}
	if mapped := netip.MustParseAddr("::ffff:192.0.2.1"); string(c.cookie(mapped, now)) != string(c.cookie(mine, now)) {
		t.Error("an IPv4 address has another cookie as an IPv6 address")
	}
}

// writeOf returns the write of a name.
func writeOf(t *testing.T, who byte, number uint64) *gnrswire.Message {
	t.Helper()
	m := &gnrswire.Message{Kind: gnrswire.Update}
	sign(t, who, number, time.Hour).Into(m)
	return m
}

// Forged source addresses, also that of another domain, take neither room for names nor anything
// from those who have the addresses: a write of a new name needs a cookie. That of an existing one
// needs none.
func TestForgedSources(t *testing.T) {
	const domain, owner = "192.0.2.99:9", "198.51.100.1:9"
	s := serveWith(t, "127.0.0.1:0", Limits{Lookups: 1000, Writes: 100, NewNames: 100}, &slow{})
	for who := range byte(50) {
		for _, from := range []string{domain, owner, fmt.Sprintf("203.0.113.%d:9", who)} {
			a := claiming(t, s, from, writeOf(t, who, 1))
			if a == nil {
				t.Fatalf("the write of new name %d from forged %s is accepted", who, from)
			}
			if code := Code(a.Code); code != Unproven && code != TooOften || CookieOf(a) != nil {
				t.Fatalf("the write of new name %d from forged %s is answered with %v, cookie %x", who, from, code, CookieOf(a))
			}
		}
	}
	asks := writeOf(t, 1, 1)
	asks.Options = append(asks.Options, CookieOption(nil))
	a := claiming(t, s, "203.0.113.99:9", asks)
	if a == nil || Code(a.Code) != Unproven || CookieOf(a) == nil {
		t.Fatalf("a write that asks for a cookie is answered with %+v", a)
	}
	for n, from := range []string{domain, owner} {
		if a := asking(t, s, from, writeOf(t, byte(100+n), 1)); a != nil { // accepted writes are answered later
			t.Errorf("the write of a new name from %s with its cookie is answered with %v", from, Code(a.Code))
		}
	}
	eventually(t, "the names are written", func() bool { return s.Counters().Answers[OK] == 2 })
	if a := claiming(t, s, "203.0.113.200:9", writeOf(t, 100, 2)); a != nil {
		t.Errorf("the update of an existing name without a cookie is answered with %v", Code(a.Code))
	}
}

// Whoever sends with the address of another takes nothing from it, and writes without cookies leave
// room for others.
func TestUnprovenLimits(t *testing.T) {
	s, now := newSourceLimits(Limits{Lookups: 100, Writes: 100, NewNames: 100}, 0), time.Now()
	victim := netip.MustParseAddr("198.51.100.1")
	for range 1000 {
		s.allow(source{victim, false}, useLookup, now)
		s.allow(source{victim, false}, useWrite, now)
	}
	for i := range 2 * maxSources {
		s.allow(source{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), false}, useWrite, now)
	}
	for _, what := range []use{useLookup, useWrite, useNewName} {
		for n := range 10 {
			if !s.allow(source{victim, true}, what, now) {
				t.Errorf("action %d of kind %d is refused beside those of forged sources", n, what)
			}
		}
	}
}

// A lookup from an address that is not proven is answered, and promises no notifications.
func TestWatchNeedsCookie(t *testing.T) {
	s := serve(t, Limits{})
	if err := clientOf(t, s).Write(t.Context(), sign(t, 1, 1, time.Hour)); err != nil {
		t.Fatal(err)
	}
	watch := &gnrswire.Message{Kind: gnrswire.Lookup, GUID: nameOf(1), Options: []gnrswire.Option{{Kind: optionWatch}}}
	for n := range 2 * maxWatchesPerName {
		from := fmt.Sprintf("10.0.%d.%d:9", n/250, n%250)
		a := claiming(t, s, from, watch)
		if a == nil || Code(a.Code) != OK || len(a.Addresses) == 0 || hasOption(a, optionWatch, 0) {
			t.Fatalf("the lookup from forged %s is answered with %+v", from, a)
		}
	}
	if s.watches.total != 0 {
		t.Errorf("%d forged addresses are to be notified", s.watches.total)
	}
	if a := asking(t, s, "198.51.100.1:9", watch); a == nil || !hasOption(a, optionWatch, 0) {
		t.Errorf("a lookup with a cookie is answered with %+v, want a promise", a)
	}
}

// A client needs one round trip for a lookup and for the update of an existing name, and two for its
// first write of a new name only.
func TestRoundTrips(t *testing.T) {
	s := serve(t, Limits{})
	first, second, cache := clientOf(t, s), clientOf(t, s), cacheOf(t, s)
	write := func(c *Client, who byte, number uint64, want uint64) {
		t.Helper()
		before := s.Counters().Writes
		if err := c.Write(t.Context(), sign(t, who, number, time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n := s.Counters().Writes - before; n != want {
			t.Errorf("name %d, number %d: %d writes were sent, want %d", who, number, n, want)
		}
	}
	write(first, 1, 1, 2)
	write(first, 2, 1, 1)
	write(second, 1, 2, 1)
	first.mu.Lock()
	first.cookie = make([]byte, cookieSize) // as if it were that of a server which has been restarted
	first.mu.Unlock()
	write(first, 1, 3, 1)
	if _, err := cache.Lookup(t.Context(), nameOf(1)); err != nil {
		t.Error(err)
	}
	eventually(t, "the cache's first name is watched", func() bool {
		cache.mu.Lock()
		defer cache.mu.Unlock()
		x := cache.names[nameOf(1)]
		return x != nil && time.Until(x.until) > unwatchedLifetime
	})
	if _, err := cache.Lookup(t.Context(), frame.GUID{1}); err == nil {
		t.Error("a name is known that nobody has written")
	} else if refused := (*RefusedError)(nil); !errors.As(err, &refused) {
		t.Error(err)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		pause.For(time.Millisecond, what)
	}
}
