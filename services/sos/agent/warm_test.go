package agent

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// silentPeer returns the other end of a warm connection of X, which the test controls.
func (p *pair) silentPeer(t *testing.T) (at netip.AddrPort, c net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.5:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if c, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	at = ln.Addr().(*net.TCPAddr).AddrPort()
	p.x.warm.put(warmKey{peer: at, transport: p.x.cfg.Transport}, nc)
	return at, c
}

// clientAt sets a session up at X alone, with another peer, and connects its client.
func (p *pair) clientAt(t *testing.T, peer netip.AddrPort) (f *flow, client net.Conn) {
	t.Helper()
	f = &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	from, err := reserve(netip.AddrPortFrom(p.clientAddr, 0), "")
	if err != nil {
		t.Fatal(err)
	}
	x, _ := p.requests(f, netip.AddrPortFrom(p.clientAddr, from.port), agentapi.Params{Connections: 1})
	x.Peer = agentapi.Peer{Addr: peer.Addr(), DataPorts: []uint16{peer.Port()}}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	at, err := p.toX.Prepare(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.toX.Commit(ctx, f.id); err != nil {
		t.Fatal(err)
	}
	if client, err = from.dial(ctx, netip.AddrPortFrom(at.Addr, at.Port)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return f, client
}

// TestWarmDoesNotWait checks that on a warm connection neither the client nor its request waits for
// the peer's answer or for a grant.
func TestWarmDoesNotWait(t *testing.T) {
	p := newPair(t, nil)
	at, peer := p.silentPeer(t)
	f, client := p.clientAt(t, at)
	const request = "GET / HTTP/1.1\r\n\r\n"
	if _, err := io.WriteString(client, request); err != nil {
		t.Fatal(err)
	}
	opening := make([]byte, wire.OpeningSize)
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.ReadFull(peer, opening); err != nil {
		t.Fatal(err)
	}
	if h := readHeader(t, peer); h.Number != 0 || int(h.Length) != len(request) {
		t.Errorf("%+v, want the request's %d bytes", h, len(request))
	}
	reply := wire.Answer{}.AppendTo(nil, opening, f.key[:])
	reply = wire.Header{Kind: wire.Data, Length: 2}.AppendTo(reply)
	if _, err := peer.Write(append(reply, "ok"...)); err != nil {
		t.Fatal(err)
	}
	_ = client.SetReadDeadline(time.Now().Add(testTimeout))
	got := make([]byte, 2)
	if _, err := io.ReadFull(client, got); err != nil || string(got) != "ok" {
		t.Errorf("the client reads %q, %v", got, err)
	}
}

// TestWarmImpostor checks that a peer that cannot prove the session's key on a warm connection
// loses that connection, and that nothing it sends reaches the client.
func TestWarmImpostor(t *testing.T) {
	p := newPair(t, nil)
	at, peer := p.silentPeer(t)
	_, client := p.clientAt(t, at)
	opening := make([]byte, wire.OpeningSize)
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.ReadFull(peer, opening); err != nil {
		t.Fatal(err)
	}
	wrong := agentapi.NewKey()
	reply := wire.Answer{}.AppendTo(nil, opening, wrong[:])
	reply = wire.Header{Kind: wire.Data, Length: 2}.AppendTo(reply)
	if _, err := peer.Write(append(reply, "no"...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection is given up", func() bool {
		_ = peer.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := io.Copy(io.Discard, peer)
		return err == nil || !timedOut(err)
	})
	_ = client.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, _ := client.Read(make([]byte, 10)); n != 0 {
		t.Errorf("the client has %d bytes of an impostor", n)
	}
}

// TestResetByPeerThatDoesNotRead checks that a peer that gives a session up, and does not read the
// data that is being sent to it, does not occupy the agent's resources for long.
func TestResetByPeerThatDoesNotRead(t *testing.T) {
	p := newPair(t, func(x, _ *Config) { x.OpeningTimeout = 200 * time.Millisecond })
	at, peer := p.silentPeer(t)
	f, client := p.clientAt(t, at)
	go func() { _, _ = sendAll(client, 1<<30, 1) }() // it ends with the session
	opening := make([]byte, wire.OpeningSize)
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.ReadFull(peer, opening); err != nil {
		t.Fatal(err)
	}
	reply := wire.Answer{}.AppendTo(nil, opening, f.key[:])
	reply = wire.Header{Kind: wire.Window, Number: 1 << 40}.AppendTo(reply)
	if _, err := peer.Write(reply); err != nil {
		t.Fatal(err)
	}
	s := p.x.session(f.id)
	var had uint64
	eventually(t, "no more is sent to it", func() bool {
		before := had
		had = s.out.bytes.Load()
		return had > wire.FirstCredit && had == before
	})
	if _, err := peer.Write(wire.Header{Kind: wire.Reset, Number: uint64(wire.CauseAgent)}.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all memory of the session is given back", func() bool { return p.x.pipes.inUse.Load() == 0 })
}

// TestWarmEnded checks that an agent notices that the peer has closed a warm connection before a
// session uses it.
func TestWarmEnded(t *testing.T) {
	p := newPair(t, nil)
	at, peer := p.silentPeer(t)
	nc := p.x.warm.take(warmKey{peer: at, transport: p.x.cfg.Transport})
	if isClosed(nc) {
		t.Error("a connection that stands counts as ended")
	}
	_ = peer.Close()
	eventually(t, "it counts as ended", func() bool { return isClosed(nc) })
	_ = nc.Close()
}

// TestWarmPoolIsBounded checks the limits of idle connections to one peer, by all of its ports, and
// to all peers. Further connections, and those that have been idle for too long, are closed.
func TestWarmPoolIsBounded(t *testing.T) {
	w := newWarmPool(&Config{WarmPerPeer: 3, WarmTotal: 5, WarmIdle: time.Minute})
	var far []net.Conn
	put := func(peer string) {
		near, other := net.Pipe()
		t.Cleanup(func() { _ = other.Close() })
		far = append(far, other)
		w.put(warmKey{peer: netip.MustParseAddrPort(peer)}, near)
	}
	closed := func() (n int) {
		for _, c := range far {
			_ = c.SetReadDeadline(time.Unix(1, 0))
			if _, err := c.Read(make([]byte, 1)); err == io.EOF {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		peer         string
		idle, closed int
	}{
		{"10.0.0.1:1", 1, 0},
		{"10.0.0.1:2", 2, 0},
		{"10.0.0.1:2", 3, 0},
		{"10.0.0.1:3", 3, 1}, // the peer has three already
		{"10.0.0.2:1", 4, 1},
		{"10.0.0.2:1", 5, 1},
		{"10.0.0.3:1", 5, 2}, // all peers have as many as permitted
	} {
		if put(c.peer); w.size() != c.idle || closed() != c.closed {
			t.Errorf("after one of %s: %d idle, %d closed; want %d, %d", c.peer, w.size(), closed(), c.idle, c.closed)
		}
	}
	_ = w.take(warmKey{peer: netip.MustParseAddrPort("10.0.0.1:1")}).Close()
	put("10.0.0.1:3")
	if w.size() != 5 || closed() != 3 {
		t.Errorf("when one has been taken: %d idle, %d closed", w.size(), closed())
	}
	w.expire(time.Now().Add(11 * time.Minute))
	if w.size() != 0 || closed() != len(far) || len(w.byPeer) != 0 {
		t.Errorf("when their time is over: %d idle, %d of %d closed, %v", w.size(), closed(), len(far), w.byPeer)
	}
}

// TestIdleAcceptedAreBounded checks that the accepting side closes the connections that a peer, or
// all peers together, keep idle beyond the limits, whatever the peer's own limits are.
func TestIdleAcceptedAreBounded(t *testing.T) {
	p := newPair(t, func(_, y *Config) { y.WarmPerPeer = 2 })
	for range 2 {
		f := p.open(agentapi.Params{Connections: 5})
		eventually(t, "all connections stand", func() bool { return p.y.session(f.id).counters().ConnsOpen == 5 })
		exchange(t, f, 1000, 1000)
		f.ended(p.y)
		eventually(t, "two connections are left", func() bool {
			p.y.acceptor.mu.Lock()
			defer p.y.acceptor.mu.Unlock()
			return len(p.y.acceptor.accepted) == 2 && p.y.acceptor.idle == 2
		})
	}
	x := newAcceptor(&Agent{cfg: Config{WarmPerPeer: 2, WarmTotal: 3}})
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if one, two, three := x.startIdle(first), x.startIdle(first), x.startIdle(first); !one || !two || three {
		t.Error("the first peer may not have two, or may have three")
	}
	if one, two := x.startIdle(second), x.startIdle(second); !one || two {
		t.Error("all peers may not have three, or may have four")
	}
	for _, peer := range []netip.Addr{first, first, second} {
		x.stopIdle(peer)
	}
	if x.idle != 0 || len(x.idleByPeer) != 0 {
		t.Errorf("at the end %d are counted, %v", x.idle, x.idleByPeer)
	}
}

// TestLastWarmStay checks that the two idle connections to a peer that were used last are kept
// longer than the others.
func TestLastWarmStay(t *testing.T) {
	w := newWarmPool(&Config{WarmPerPeer: 10, WarmTotal: 10, WarmIdle: time.Minute})
	var near [4]net.Conn
	for i := range near {
		var far net.Conn
		near[i], far = net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		w.put(warmKey{}, near[i])
	}
	w.expire(time.Now().Add(2 * time.Minute))
	if w.size() != 2 {
		t.Errorf("after two minutes: %d idle, want 2", w.size())
	}
	if c := w.take(warmKey{}); c != near[3] {
		t.Error("the connection that was used last is not among them")
	} else {
		w.put(warmKey{}, c)
	}
	w.expire(time.Now().Add(11 * time.Minute))
	if w.size() != 0 {
		t.Errorf("after eleven minutes: %d idle", w.size())
	}
}

// TestShortSessionsTakeOneConnection checks that a session with a server whose sessions have been
// short gets one connection, and a second one as soon as it turns out to be long.
func TestShortSessionsTakeOneConnection(t *testing.T) {
	p := newPair(t, nil)
	for range shortInRow {
		f := p.open(agentapi.Params{})
		eventually(t, "there are two connections", func() bool { return p.x.session(f.id).counters().ConnsOpen == 2 })
		exchange(t, f, 1000, 1000)
		f.ended(p.x)
	}
	f := p.open(agentapi.Params{})
	exchange(t, f, 1000, 1000)
	if r := f.ended(p.x); r.Counters.Connections != 1 {
		t.Errorf("%d connections, %s", r.Counters.Connections, r.Counters.Why)
	}
	f = p.open(agentapi.Params{})
	mustWrite(t, f.client, strings.Repeat("x", shortSession+1))
	eventually(t, "there is a second connection", func() bool { return p.x.session(f.id).counters().ConnsOpen == 2 })
	go func() { _, _ = io.Copy(io.Discard, f.server) }()
	_ = f.client.CloseWrite()
	_ = f.server.CloseWrite()
	f.ended(p.x)
	if p.x.sizes.likelyShort(f.p.serverListen.Addr().(*net.TCPAddr).AddrPort()) {
		t.Error("the server's sessions still count as short")
	}
}

func timedOut(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}
