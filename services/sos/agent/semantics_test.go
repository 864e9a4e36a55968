package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// bounded sets a deadline on both ends of a flow, so that a hang is a failure.
func bounded(f *flow) {
	deadline := time.Now().Add(4 * testTimeout)
	_ = f.client.SetDeadline(deadline)
	_ = f.server.SetDeadline(deadline)
}

func mustReadAll(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != want {
		t.Errorf("read %q, %v: want %q and the end", got, err, want)
	}
}

func mustWrite(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Error(err)
	}
}

// TestHalfClose checks, in both directions, that one end can close its side while the other
// continues.
func TestHalfClose(t *testing.T) {
	p := newPair(t, nil)
	for _, c := range []struct {
		name        string
		first, then func(f *flow) *net.TCPConn
	}{
		{"client first", func(f *flow) *net.TCPConn { return f.client }, func(f *flow) *net.TCPConn { return f.server }},
		{"server first", func(f *flow) *net.TCPConn { return f.server }, func(f *flow) *net.TCPConn { return f.client }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := p.open(agentapi.Params{Connections: 3})
			bounded(f)
			first, then := c.first(f), c.then(f)
			mustWrite(t, first, "question")
			if err := first.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			mustReadAll(t, then, "question")
			// The other direction stays open for as long as it takes.
			for range 3 {
				mustWrite(t, then, "answer ")
				got := make([]byte, 7)
				if _, err := io.ReadFull(first, got); err != nil || string(got) != "answer " {
					t.Fatalf("after half-close: %q, %v", got, err)
				}
			}
			if err := then.Close(); err != nil {
				t.Fatal(err)
			}
			mustReadAll(t, first, "")
			for _, a := range []*Agent{p.x, p.y} {
				if r := f.ended(a); r.Reason != agentapi.ReasonClosed {
					t.Errorf("reason %q at %v", r.Reason, a.cfg.DataAddr)
				}
			}
		})
	}
}

// TestServerSpeaksFirst checks a protocol in which the server sends first, as in SSH or SMTP.
func TestServerSpeaksFirst(t *testing.T) {
	f := newPair(t, nil).open(agentapi.Params{})
	bounded(f)
	mustWrite(t, f.server, "220 ready")
	got := make([]byte, 9)
	if _, err := io.ReadFull(f.client, got); err != nil || string(got) != "220 ready" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestReset checks that a reset reaches the other end, after the bytes before it.
func TestReset(t *testing.T) {
	p := newPair(t, nil)
	for _, c := range []struct {
		name     string
		from, to func(f *flow) *net.TCPConn
		reason   agentapi.Reason
	}{
		{"by the client", func(f *flow) *net.TCPConn { return f.client }, func(f *flow) *net.TCPConn { return f.server }, agentapi.ReasonClientReset},
		{"by the server", func(f *flow) *net.TCPConn { return f.server }, func(f *flow) *net.TCPConn { return f.client }, agentapi.ReasonServerReset},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := p.open(agentapi.Params{Connections: 2})
			bounded(f)
			from, to := c.from(f), c.to(f)
			mustWrite(t, from, "last words")
			eventually(t, "the agent has taken the bytes", func() bool {
				e := endHost{conn: from}
				e.rc, _ = from.SyscallConn()
				return e.unacked() == 0
			})
			resetNow(from)
			got, err := io.ReadAll(to)
			if string(got) != "last words" || !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("other end read %q, %v: want the bytes, then a reset", got, err)
			}
			for _, a := range []*Agent{p.x, p.y} {
				if r := f.ended(a); r.Reason != c.reason {
					t.Errorf("reason %q at %v, want %q", r.Reason, a.cfg.DataAddr, c.reason)
				}
			}
		})
	}
}

// TestResetWhileStopped checks that a reset is noticed although neither direction moves, because
// the reader is stopped and the window is full.
func TestResetWhileStopped(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 2, ChunkBytes: 64 << 10, Queue: 4})
	_ = f.client.SetWriteDeadline(time.Now().Add(2 * time.Second))
	if _, err := sendAll(f.client, 1<<30, 1); err == nil {
		t.Fatal("a stopped reader took a gigabyte")
	}
	resetNow(f.client)
	for _, a := range []*Agent{p.x, p.y} {
		if r := f.ended(a); r.Reason != agentapi.ReasonClientReset {
			t.Errorf("reason %q", r.Reason)
		}
	}
	_ = f.server.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.Copy(io.Discard, f.server); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("server: %v, want a reset", err)
	}
}

// TestConnectionLost checks that no byte is lost or duplicated in either direction when a
// connection between the agents dies during a session.
func TestConnectionLost(t *testing.T) {
	for _, tls := range []bool{false, true} {
		p := newPair(t, withTLS(t, tls))
		f := p.open(agentapi.Params{Connections: 3, ChunkBytes: 64 << 10, TLS: tls})
		bounded(f)
		stop := make(chan struct{})
		stopped := make(chan int)
		go func() {
			kills := 0
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					stopped <- kills
					return
				case <-tick.C:
				}
				a := []*Agent{p.x, p.y}[i%2]
				s := a.session(f.id)
				if s == nil {
					continue
				}
				if list := *s.conns.Load(); len(list) > 0 && kills < 25 {
					resetNow(list[i%len(list)].net)
					kills++
				}
			}
		}()
		exchange(t, f, 100<<20, 50<<20)
		close(stop)
		kills := <-stopped
		r := f.ended(p.x)
		if kills == 0 || r.Counters.ConnsLost == 0 {
			t.Errorf("nothing was lost: %d kills, %+v", kills, r.Counters)
		}
		if ry := f.ended(p.y); r.Reason != agentapi.ReasonClosed || ry.Reason != agentapi.ReasonClosed {
			t.Errorf("ended %q %q", r.Reason, ry.Reason)
		}
		t.Logf("tls=%v: %d connections killed, %d lost at X, %d chunks resent by X", tls, kills, r.Counters.ConnsLost, r.Counters.ChunksResent)
	}
}

// TestAllConnectionsLost checks that a session continues with new connections when all have died at
// once.
func TestAllConnectionsLost(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 4})
	bounded(f)
	mustWrite(t, f.client, "one ")
	for _, a := range []*Agent{p.x, p.y} {
		for _, c := range *a.session(f.id).conns.Load() {
			resetNow(c.net)
		}
	}
	mustWrite(t, f.client, "two")
	_ = f.client.CloseWrite()
	mustReadAll(t, f.server, "one two")
	_ = f.server.CloseWrite()
	mustReadAll(t, f.client, "")
	if r := f.ended(p.x); r.Reason != agentapi.ReasonClosed {
		t.Errorf("ended %+v", r)
	}
}

// TestStoppedReader checks that a stopped reader stops the sender, and that the agents hold a
// bounded amount of data meanwhile.
func TestStoppedReader(t *testing.T) {
	p := newPair(t, nil)
	const n, c, q = 2, 128 << 10, 8
	f := p.open(agentapi.Params{Connections: n, ChunkBytes: c, Queue: q})
	sent := make(chan result, 1)
	go func() {
		s, err := sendAll(f.client, 256<<20, 1)
		_ = f.client.CloseWrite()
		sent <- result{s, 256 << 20, err}
	}()
	var last, held uint64
	still := 0
	eventually(t, "the sender is stopped", func() bool {
		x, y := p.x.session(f.id), p.y.session(f.id)
		if x == nil || y == nil {
			return false
		}
		taken, holds := x.counters().BytesUp, y.counters().BufferedBytes
		if holds == 0 || taken != last || holds != held || !x.out.blocked() {
			still = 0 // Y may have stopped only for a moment, with what the reader's socket still accepts before it
		}
		last, held, still = taken, holds, still+1
		return still > 20
	})
	if held > n*c*q {
		t.Errorf("Y holds %d bytes, the bound is %d", held, n*c*q)
	}
	t.Logf("Y holds %d of at most %d bytes; X has taken %d", held, n*c*q, last)
	select {
	case <-sent:
		t.Fatal("the sender was not stopped")
	default:
	}
	got, m, err := sum(f.server)
	if r := <-sent; err != nil || r.err != nil || m != r.n || got != r.sum {
		t.Errorf("after the stop: %d of %d bytes, %v %v", m, r.n, err, r.err)
	}
}

// TestBothWriteFirst checks that both ends can write without reading until one has finished, as far
// as buffers permit, as on a direct connection: acknowledgements do not wait for readers.
func TestBothWriteFirst(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 2})
	bounded(f)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	done := make(chan error, 2)
	for _, c := range []net.Conn{f.client, f.server} {
		go func() {
			_, err := c.Write(data)
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{f.client, f.server} {
		got := make([]byte, len(data))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%v, equal: %v", err, bytes.Equal(got, data))
		}
	}
}

// TestUrgent checks that urgent data arrives in line.
func TestUrgent(t *testing.T) {
	f := newPair(t, nil).open(agentapi.Params{})
	bounded(f)
	mustWrite(t, f.client, "ab")
	if err := onSocket(f.client, func(fd int) error { return unix.Sendto(fd, []byte("!"), unix.MSG_OOB, nil) }); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f.client, "cd")
	_ = f.client.CloseWrite()
	mustReadAll(t, f.server, "ab!cd")
}

// TestIdle checks that an idle session ends with a reset at both ends.
func TestIdle(t *testing.T) {
	p := newPair(t, func(x, y *Config) { x.IdleTimeout, y.IdleTimeout = 4*time.Second, time.Hour })
	f := p.open(agentapi.Params{})
	bounded(f)
	mustWrite(t, f.client, "x")
	for _, c := range []net.Conn{f.client, f.server} {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	}
	if r := f.ended(p.x); r.Reason != agentapi.ReasonIdle {
		t.Errorf("reason at X %q", r.Reason)
	}
	if r := f.ended(p.y); r.Reason != agentapi.ReasonPeerReset {
		t.Errorf("reason at Y %q", r.Reason)
	}
}

// TestAbort checks that the controller can abort a session.
func TestAbort(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 2})
	bounded(f)
	if err := p.toX.Abort(context.Background(), f.id); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{f.client, f.server} {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	}
	if rx, ry := f.ended(p.x), f.ended(p.y); rx.Reason != agentapi.ReasonAborted || ry.Reason != agentapi.ReasonPeerReset {
		t.Errorf("reasons %q, %q", rx.Reason, ry.Reason)
	}
}

// TestWarm checks that a second session uses warm connections.
func TestWarm(t *testing.T) {
	p := newPair(t, nil)
	for i := range 3 {
		f := p.open(agentapi.Params{Connections: 3})
		// The connections must be idle at both ends: the dialling end also counts those that the
		// other has not answered yet.
		for _, a := range []*Agent{p.x, p.y} {
			eventually(t, "all connections stand", func() bool {
				s := a.session(f.id)
				return s != nil && s.counters().ConnsOpen == 3
			})
		}
		exchange(t, f, 1000, 1000)
		eventually(t, "connections are in the pool", func() bool { return p.x.warm.size() == 3 })
		if r := f.ended(p.x); i > 0 && r.Counters.ConnsWarm != 3 {
			t.Errorf("session %d: %d warm connections, want 3", i, r.Counters.ConnsWarm)
		}
	}
	// Connections that have died in the pool do no harm.
	p.y.acceptor.endIdle()
	eventually(t, "the peer has closed them", func() bool {
		p.y.acceptor.mu.Lock()
		defer p.y.acceptor.mu.Unlock()
		return len(p.y.acceptor.accepted) == 0
	})
	exchange(t, p.open(agentapi.Params{Connections: 3}), 1000, 1000)
}

// TestWarmAfterReset checks that the next session can use the connections, however a session ends.
func TestWarmAfterReset(t *testing.T) {
	for _, c := range []struct {
		name string
		tls  bool
		end  func(p *pair, f *flow)
	}{
		{"by the client", false, func(_ *pair, f *flow) { resetNow(f.client) }},
		{"by the server", false, func(_ *pair, f *flow) { resetNow(f.server) }},
		{"by the server, encrypted", true, func(_ *pair, f *flow) { resetNow(f.server) }},
		{"by both", false, func(_ *pair, f *flow) { resetNow(f.client); resetNow(f.server) }},
		{"by the controller", false, func(p *pair, f *flow) { _ = p.toX.Abort(context.Background(), f.id) }},
		{"with bytes before it", false, func(_ *pair, f *flow) {
			_, _ = io.WriteString(f.client, strings.Repeat("x", 300_000))
			resetNow(f.client)
		}},
		{"with bytes against it", false, func(_ *pair, f *flow) {
			_, _ = io.WriteString(f.server, strings.Repeat("x", 300_000))
			resetNow(f.client)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, withTLS(t, c.tls))
			params := agentapi.Params{Connections: 2, TLS: c.tls}
			opened := func() *flow {
				f := p.open(params)
				for _, a := range []*Agent{p.x, p.y} {
					eventually(t, "all connections stand", func() bool {
						s := a.session(f.id)
						return s != nil && s.counters().ConnsOpen == 2
					})
				}
				return f
			}
			f := opened()
			c.end(p, f)
			f.ended(p.x)
			f.ended(p.y)
			eventually(t, "connections are in the pool", func() bool { return p.x.warm.size() == 2 })
			f = opened()
			exchange(t, f, 100_000, 100_000)
			if r := f.ended(p.x); r.Counters.ConnsWarm != 2 {
				t.Errorf("%d warm connections, want 2", r.Counters.ConnsWarm)
			}
		})
	}
}

// used is a transport whose connections have retransmitted segments before.
type used struct{ Transport }

func (u used) Stats(c net.Conn) (ConnStats, error) {
	s, err := u.Transport.Stats(c)
	s.Retransmits += 1000
	return s, err
}

// TestRetransmitsAreTheSessions checks that retransmissions of a warm connection for other sessions
// do not count for a session.
func TestRetransmitsAreTheSessions(t *testing.T) {
	p := newPair(t, nil)
	for _, a := range []*Agent{p.x, p.y} {
		a.transports = transports{used{a.transports[0]}}
	}
	f := p.open(agentapi.Params{Connections: 2})
	eventually(t, "all connections stand", func() bool { return p.x.session(f.id).counters().ConnsOpen == 2 })
	if n := p.x.session(f.id).counters().Retransmits; n >= 1000 {
		t.Errorf("%d retransmits at the beginning", n)
	}
	exchange(t, f, 1000, 1000)
	for _, a := range []*Agent{p.x, p.y} {
		if r := f.ended(a); r.Counters.Retransmits >= 1000 {
			t.Errorf("%d retransmits of a small session", r.Counters.Retransmits)
		}
	}
}

// TestTLS checks the same over TLS, and that the payload is encrypted.
func TestTLS(t *testing.T) {
	p := newPair(t, withTLS(t, true))
	for range 2 {
		f := p.open(agentapi.Params{Connections: 3, TLS: true})
		exchange(t, f, 20<<20, 30<<20)
		if r := f.ended(p.y); r.Reason != agentapi.ReasonClosed {
			t.Errorf("ended %+v", r)
		}
	}
}
