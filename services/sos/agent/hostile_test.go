package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// TestPeerSendsLargerChunks checks that the receiver accepts any size of chunks that the protocol
// permits, in copy mode as well, because agents may have different configurations.
func TestPeerSendsLargerChunks(t *testing.T) {
	p := newPair(t, func(x, y *Config) {
		withTLS(t, true)(x, y)
		x.ChunkBytes, y.ChunkBytes = 1<<20, 16<<10
	})
	f := p.open(agentapi.Params{TLS: true, Connections: 2})
	bounded(f)
	exchange(t, f, 8<<20, 8<<20)
}

// TestMorePathsThanConnections uses a peer with more data ports than this agent permits
// connections.
func TestMorePathsThanConnections(t *testing.T) {
	p := newPair(t, func(x, y *Config) {
		x.MaxConnections, x.AutoConnections = 2, 2
		y.DataPorts = []uint16{0, 0, 0, 0}
	})
	f := p.open(agentapi.Params{})
	bounded(f)
	exchange(t, f, 1<<20, 1<<20)
}

// TestSmallPipes checks that chunks that were read into a large pipe are kept and sent although
// later pipes are small: the kernel limits a user without privileges to a number of large pipes.
func TestSmallPipes(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 2})
	bounded(f)
	for _, a := range []*Agent{p.x, p.y} {
		var large []*pipe
		for range 4 {
			q, err := a.pipes.get()
			if err != nil {
				t.Fatal(err)
			}
			large = append(large, q)
		}
		for _, q := range large {
			a.pipes.put(q)
		}
		a.pipes.mu.Lock()
		for i, q := range a.pipes.idle {
			if i%2 == 0 {
				if _, err := unix.FcntlInt(uintptr(q.w), unix.F_SETPIPE_SZ, 4096); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.pipes.mu.Unlock()
	}
	exchange(t, f, 8<<20, 8<<20)
}

// readHeader reads up to the next chunk and returns its header.
func readHeader(t *testing.T, c net.Conn) wire.Header {
	t.Helper()
	var b [wire.HeaderSize]byte
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatal(err)
		}
		h, err := wire.ParseHeader(b[:])
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind == wire.Data {
			if _, err := io.CopyN(io.Discard, c, int64(h.Length)); err != nil {
				t.Fatal(err)
			}
			return h
		}
	}
}

// TestReleaseBeforeResentChunks checks that a session ends in order if a connection dies when the
// peer has received its chunks but not acknowledged them, and the peer, which has everything,
// releases the others.
func TestReleaseBeforeResentChunks(t *testing.T) {
	p := newPair(t, nil)
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	_, req := p.requests(f, netip.AddrPortFrom(p.clientAddr, 4242), agentapi.Params{})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if _, err := p.toY.Prepare(ctx, req); err != nil {
		t.Fatal(err)
	}
	open := func(index uint16) net.Conn {
		c, err := net.Dial("tcp", p.dataPort(p.y))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		o := wire.Opening{Session: f.id, Index: index, Generation: 1, Window: 1 << 10}
		_, _ = c.Write(o.AppendTo(nil, f.key[:]))
		var answer [wire.AnswerSize]byte
		if _, err := io.ReadFull(c, answer[:]); err != nil {
			t.Fatal(err)
		}
		return c
	}
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, _ := p.serverListen.AcceptTCP()
		accepted <- c
	}()
	if err := p.toY.Commit(ctx, f.id); err != nil {
		t.Fatal(err)
	}
	server := <-accepted
	defer server.Close()
	a := open(0)
	eventually(t, "the first connection stands", func() bool { return len(*p.y.session(f.id).conns.Load()) == 1 })
	if _, err := server.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if h := readHeader(t, a); h.Number != 0 {
		t.Fatalf("%+v", h)
	}
	b := open(1)
	// The client has closed its side. The peer has both directions to the end once it has read the
	// last chunk.
	_, _ = b.Write(wire.Header{Kind: wire.Data, Flags: wire.FlagFIN}.AppendTo(nil))
	if n, err := server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("server reads %d, %v", n, err)
	}
	_ = server.CloseWrite()
	// The last chunk may arrive on either connection.
	last := make(chan net.Conn, 2)
	for _, c := range []net.Conn{a, b} {
		go func() {
			buf := make([]byte, 4096)
			for {
				_ = c.SetReadDeadline(time.Now().Add(testTimeout))
				n, err := c.Read(buf)
				for i := 0; i+wire.HeaderSize <= n; i += wire.HeaderSize {
					if h, herr := wire.ParseHeader(buf[i:]); herr == nil && h.Kind == wire.Data {
						last <- c
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
	at := <-last
	if at == a {
		// Both chunks were sent on the first connection: the second acknowledges nothing, and
		// carries the release.
		t.Log("the last chunk came on the first connection")
	}
	resetNow(a)
	eventually(t, "the first connection is lost", func() bool { return len(*p.y.session(f.id).conns.Load()) == 1 })
	var out []byte
	if at == b {
		out = wire.Header{Kind: wire.Ack, Number: 1}.AppendTo(out)
	}
	_, _ = b.Write(wire.Header{Kind: wire.Release}.AppendTo(out))
	if r := f.ended(p.y); r.Reason != agentapi.ReasonClosed {
		t.Errorf("%s %s", r.Reason, r.Detail)
	}
}

// TestPortRests checks that a client can use its port again as soon as its session is over: the
// agent does not refuse it while the switches still send its packets to the agent. An agent without
// privileges cannot do that.
func TestPortRests(t *testing.T) {
	live.Test(t)
	p := newPair(t, nil)
	f := p.open(agentapi.Params{})
	at := f.client.RemoteAddr().String()
	exchange(t, f, 1000, 1000)
	f.ended(p.x)
	d := net.Dialer{Timeout: 200 * time.Millisecond}
	var ne net.Error
	if c, err := d.Dial("tcp", at); err == nil {
		_ = c.Close()
		t.Error("the port of a session that is over takes connections")
	} else if !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("the port of a session that has just ended answers: %v", err)
	}
	eventually(t, "the port is given back", func() bool {
		_, err := d.Dial("tcp", at)
		return errors.Is(err, unix.ECONNREFUSED)
	})
}

// TestPeerThatConfirmsNothing checks that a peer that grants endless credit, reads everything and
// confirms nothing takes no more than a session's memory, and that the session goes on when the
// peer confirms.
func TestPeerThatConfirmsNothing(t *testing.T) {
	const chunk, queue = 64 << 10, 4
	p := newPair(t, func(x, _ *Config) { x.ChunkBytes, x.Queue = chunk, queue })
	at, peer := p.silentPeer(t)
	f, client := p.clientAt(t, at) // on one connection
	const all = 16 << 20
	go func() { _, _ = sendAll(client, all, 1) }()
	opening := make([]byte, wire.OpeningSize)
	_ = peer.SetReadDeadline(time.Now().Add(2 * testTimeout))
	if _, err := io.ReadFull(peer, opening); err != nil {
		t.Fatal(err)
	}
	answer := wire.Answer{}.AppendTo(nil, opening, f.key[:])
	if _, err := peer.Write(wire.Header{Kind: wire.Window, Number: 1 << 62}.AppendTo(answer)); err != nil {
		t.Fatal(err)
	}
	chunks := make(chan struct{}, all)
	go func() {
		defer close(chunks)
		var b [wire.HeaderSize]byte
		for {
			if _, err := io.ReadFull(peer, b[:]); err != nil {
				return
			}
			h, err := wire.ParseHeader(b[:])
			if err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, peer, int64(h.Length)); err != nil {
				return
			}
			if h.Kind == wire.Data {
				chunks <- struct{}{}
			}
		}
	}()
	s := p.x.session(f.id)
	const bound = queue*chunk + ackEvery*(chunk+wire.ChunkCost)
	eventually(t, "the source stops", func() bool { return s.out.blocked() || s.out.bytes.Load() > bound })
	if held, pipes := s.out.bytes.Load(), p.x.pipes.inUse.Load(); held > bound || pipes > bound/wire.ChunkCost+2 {
		t.Fatalf("%d bytes in %d pipes are held for a peer that confirms nothing, want at most %d", held, pipes, bound)
	}
	received := uint64(0)
	for s.out.bytes.Load() < all {
		if _, ok := <-chunks; !ok {
			t.Fatalf("the session stops after %d bytes", s.out.bytes.Load())
		}
		received++
		if _, err := peer.Write(wire.Header{Kind: wire.Ack, Number: received}.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := peer.Write(wire.Header{Kind: wire.Reset, Number: uint64(wire.CauseAgent)}.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all memory of the session is given back", func() bool { return p.x.pipes.inUse.Load() == 0 })
}
