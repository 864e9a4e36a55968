package gnrs

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func nameOf(n byte) frame.GUID { return record.NameOfOwner(owner(n)) }

var places = []gnrswire.Address{
	gnrswire.AddrPortOf(netip.MustParseAddrPort("192.0.2.1:5000")), gnrswire.NameOf(frame.GUID{1, 2, 3}),
}

func sign(t testing.TB, who byte, number uint64, valid time.Duration) *record.Record {
	t.Helper()
	r, err := record.Sign(owner(who), number, time.Now().Add(valid), places...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// serve runs a server on the loopback interface.
func serve(t testing.TB, l Limits) *Server {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", l)
}

func serveAt(t testing.TB, at string, l Limits) *Server { return serveWith(t, at, l, nil) }

func serveWith(t testing.TB, at string, l Limits, others Others) *Server {
	t.Helper()
	store, err := namestore.Open(namestore.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Options{Store: store, Listen: netip.MustParseAddrPort(at), Limits: l, Others: others})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func clientOf(t testing.TB, s *Server) *Client {
	t.Helper()
	c, err := Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Only the owner of a name can write where it is, and the newest record counts.
func TestOwnerAloneWrites(t *testing.T) {
	c := clientOf(t, serve(t, Limits{}))
	refused := func(what string, err error, want Code) {
		t.Helper()
		var r *RefusedError
		if !errors.As(err, &r) || r.Code != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := c.Lookup(t.Context(), nameOf(1))
	refused("before anything", err, NotFound)
	first, second := sign(t, 1, 1, time.Hour), sign(t, 1, 2, time.Hour)
	for _, r := range []*record.Record{first, first, second} {
		if err := c.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	refused("replayed", c.Write(t.Context(), first), Old)
	forged := sign(t, 2, 3, time.Hour)
	forged.Key = second.Key
	refused("signed by somebody else", c.Write(t.Context(), forged), Forged)
	changed := *second
	changed.Number, changed.Addresses = 9, places[:1]
	refused("changed", c.Write(t.Context(), &changed), Forged)
	refused("over", c.Write(t.Context(), sign(t, 1, 3, -time.Second)), Over)
	m := &gnrswire.Message{Kind: gnrswire.Insert, GUID: nameOf(1), Addresses: places}
	_, err = c.ask(t.Context(), m)
	refused("not signed", err, Unsigned)
	m = &gnrswire.Message{Kind: gnrswire.Update}
	second.Into(m)
	m.GUID = nameOf(3)
	_, err = c.ask(t.Context(), m)
	refused("of another name", err, Forged)

	r, err := c.Lookup(t.Context(), nameOf(1))
	if err != nil || r.Number != 2 || len(r.Addresses) != len(places) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A client that knows only the original's messages gets the addresses, and how long they may be
// cached.
func TestOriginalLookup(t *testing.T) {
	s := serve(t, Limits{})
	if err := clientOf(t, s).Write(t.Context(), sign(t, 1, 1, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := gnrswire.Message{Kind: gnrswire.Lookup, Request: 77, Requester: gnrswire.AddrPortOf(netip.MustParseAddrPort("192.0.2.9:9")), GUID: nameOf(1)}
	b, err := m.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	in := make([]byte, datagram)
	n, err := conn.Read(in) // it comes here, and not to the address that the message names
	if err != nil {
		t.Fatal(err)
	}
	a, err := gnrswire.Parse(in[:n])
	if err != nil || !a.Answer || a.Request != 77 || a.Code != 0 || len(a.Addresses) != len(places) || a.Addresses[0].String() != "192.0.2.1:5000" {
		t.Fatalf("%+v, %v", a, err)
	}
	if len(a.Options) != 1 || a.Options[0].Kind != gnrswire.TimeToLive || a.Options[0].Value[3] > 10 || a.Options[0].Value[3] < 5 {
		t.Errorf("options %+v", a.Options)
	}
}

// Requests of one address beyond its limit are refused or not answered, and others are served.
func TestFlood(t *testing.T) {
	s := serve(t, Limits{Lookups: 100, Writes: 100, NewNames: 100})
	now := time.Now()
	r := sign(t, 1, 1, time.Hour)
	write := &gnrswire.Message{Kind: gnrswire.Update, Options: []gnrswire.Option{proof(s, "198.51.100.1:9")}}
	r.Into(write)
	sent := map[gnrswire.Kind][]byte{}
	for _, m := range []*gnrswire.Message{write, {Kind: gnrswire.Lookup, GUID: nameOf(1)}} {
		b, err := m.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		sent[m.Kind] = b
	}
	flooder, other := netip.MustParseAddrPort("198.51.100.1:9"), netip.MustParseAddrPort("198.51.100.2:9")
	answers := func(from netip.AddrPort, kind gnrswire.Kind, times int) (n, refused int) {
		for range times {
			if _, b := s.answer(nil, from, sent[kind], now); len(b) > 0 {
				n++
				if m, err := gnrswire.Parse(b); err == nil && Code(m.Code) == TooOften {
					refused++
				}
			}
		}
		return n, refused
	}
	if n, _ := answers(flooder, gnrswire.Lookup, 1000); n != 10 {
		t.Errorf("%d questions are answered", n)
	}
	if n, refused := answers(flooder, gnrswire.Update, 1000); n != 990 || refused != 990 {
		t.Errorf("%d writes are answered at once, %d refused", n, refused)
	}
	if n, _ := answers(other, gnrswire.Lookup, 1); n != 1 {
		t.Error("another one is not answered")
	}
	for i := range 2 * maxSources {
		s.limits.allow(source{addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}, useLookup, now)
	}
	if n := s.limits.unproven.bySource.Len(); n > maxSources {
		t.Errorf("%d addresses are remembered", n)
	}
	s.limits.allow(source{addr: other.Addr()}, useLookup, now.Add(time.Minute))
	s.limits.allow(source{addr: netip.MustParseAddr("203.0.113.1")}, useLookup, now.Add(time.Minute))
	if n := s.limits.unproven.bySource.Len(); n > 2 {
		t.Errorf("%d addresses are remembered a minute later", n)
	}
}

// A domain that writes without end leaves the other domains their shares, and forged sources without
// number take nothing from a domain.
func TestDomainLimits(t *testing.T) {
	s, now := newSourceLimits(Limits{Lookups: 100, Writes: 100, NewNames: 100}, 4), time.Now()
	domain := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	count := func(from netip.Addr, what use, times int) (n int) {
		for range times {
			if s.allow(source{from, what == useDomainWrite || what == useDomainLookup}, what, now) {
				n++
			}
		}
		return n
	}
	const flood = 100_000
	atOnce := writesPerProcessor * runtime.GOMAXPROCS(0) / 2 / 10 // of all domains
	if n := count(domain(0), useDomainWrite, flood); n < atOnce/2 || n > atOnce*3/4 {
		t.Errorf("one domain has written %d names at once, want half to three quarters of %d", n, atOnce)
	}
	for n := byte(1); n < 4; n++ {
		if got := count(domain(n), useDomainWrite, flood); got < atOnce/8 {
			t.Errorf("domain %d has written %d names at once, want at least an eighth of %d", n, got, atOnce)
		}
	}
	for i := range 2 * maxSources {
		count(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), useLookup, 10)
	}
	if n := count(domain(1), useDomainLookup, flood); n != domainFactor*10 {
		t.Errorf("a domain has looked up %d names at once beside a flood of others, want %d", n, domainFactor*10)
	}
}

// Two goroutines that alternate with the times of their batches do not allow more than one would.
func TestTimeDoesNotGoBack(t *testing.T) {
	s := newSourceLimits(Limits{Lookups: 100, Writes: 100, NewNames: 100}, 0)
	one, now := source{addr: netip.MustParseAddr("198.51.100.1")}, time.Now()
	allowed := 0
	for range 1000 {
		for _, at := range []time.Time{now.Add(20 * time.Millisecond), now} {
			if s.allow(one, useLookup, at) {
				allowed++
			}
		}
	}
	if allowed != 10 {
		t.Errorf("%d questions are allowed", allowed)
	}
}

// One address can write a limited number of new names, and still update existing ones.
func TestNewNames(t *testing.T) {
	s := serve(t, Limits{Lookups: 1000, Writes: 1000, NewNames: 20})
	c := clientOf(t, s)
	refused := 0
	for who := range byte(50) {
		var r *RefusedError
		if err := c.Write(t.Context(), sign(t, who, 1, time.Hour)); errors.As(err, &r) && r.Code == TooOften {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused < 10 {
		t.Errorf("%d of 50 new names are refused", refused)
	}
	if err := c.Write(t.Context(), sign(t, 0, 2, time.Hour)); err != nil {
		t.Error(err)
	}
}

// Everything works over IPv6 as over IPv4, although messages have no room for its addresses.
func TestIPv6(t *testing.T) {
	s := serveAt(t, "[::1]:0", Limits{})
	writer, cache := clientOf(t, s), cacheOf(t, s)
	for number := range uint64(3) {
		if err := writer.Write(t.Context(), sign(t, 1, number, time.Hour)); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for {
			r, err := cache.Lookup(t.Context(), nameOf(1))
			if err == nil && r.Number == number {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
}

// A client distinguishes a server that does not exist from a closed client.
func TestNoAnswer(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := Dial(silent.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lookup(t.Context(), nameOf(1)); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("%v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Lookup(t.Context(), nameOf(1))
		waiting <- err
	}()
	if _, _, err := silent.ReadFromUDPAddrPort(make([]byte, datagram)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoAnswer) {
		t.Errorf("%v", err)
	}
	if err := c.Write(t.Context(), sign(t, 1, 1, time.Hour)); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// No input makes the server do more than answer.
func FuzzAnswer(f *testing.F) {
	limits := Limits{Lookups: 1e9, Writes: 1e9, NewNames: 1e9}
	others := &slow{let: make(chan struct{})}
	close(others.let)
	servers := []*Server{serve(f, limits), serveWith(f, "127.0.0.1:0", limits, others)}
	clients := []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:9"), netip.MustParseAddrPort("192.0.2.99:9")} // the second one is a peer of others
	for _, s := range servers {
		s.cookies.secret = [32]byte{1} // so that the cookies of the seeds are valid in all processes that fuzz
	}
	add := func(m *gnrswire.Message) {
		b, err := m.AppendTo(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	proof := gnrswire.Option{Kind: optionProof, Value: make([]byte, proofSize)}
	write := &gnrswire.Message{Kind: gnrswire.Update, Requester: places[0]}
	sign(f, 1, 1, time.Hour).Into(write)
	add(write)
	add(&gnrswire.Message{Kind: gnrswire.Lookup, GUID: nameOf(1), Options: []gnrswire.Option{proof}})
	for n, from := range clients {
		valid := servers[0].cookies.cookie(from.Addr(), time.Now())
		for _, cookie := range [][]byte{valid, make([]byte, cookieSize), valid[:cookieSize/2]} {
			option := gnrswire.Option{Kind: optionCookie, Value: cookie}
			write := &gnrswire.Message{Kind: gnrswire.Insert, Options: []gnrswire.Option{option}}
			sign(f, byte(2+n), 1, time.Hour).Into(write) // a new name needs a cookie
			add(write)
			add(&gnrswire.Message{Kind: gnrswire.Lookup, GUID: nameOf(1), Options: []gnrswire.Option{option, {Kind: optionWatch}, proof}})
		}
	}
	f.Fuzz(func(t *testing.T, asked []byte) {
		for _, s := range servers {
			for _, from := range clients {
				to, b := s.answer(nil, from, asked, time.Now())
				if to.Addr() != from.Addr() || len(b) > 1024 {
					t.Errorf("%d bytes to %v for %v", len(b), to, from)
				}
			}
		}
	})
}
