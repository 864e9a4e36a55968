package agent

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestPaths checks that several data ports are used as several paths: connections are spread over
// them, a session may be limited to some, and if one path fails the others carry the transfer.
func TestPaths(t *testing.T) {
	p := newPair(t, func(_, y *Config) { y.DataPorts = []uint16{0, 0, 0} })
	used := func(f *flow) map[uint16]int {
		ports := map[uint16]int{}
		for _, c := range *p.x.session(f.id).conns.Load() {
			ports[c.net.RemoteAddr().(*net.TCPAddr).AddrPort().Port()]++
		}
		return ports
	}
	for _, c := range []struct {
		params agentapi.Params
		conns  int
		paths  int
	}{{agentapi.Params{Connections: 6}, 6, 3}, {agentapi.Params{Connections: 4, Paths: 2}, 4, 2}, {agentapi.Params{Connections: 1}, 3, 3}} {
		f := p.open(c.params)
		eventually(t, "all connections stand", func() bool { return len(*p.x.session(f.id).conns.Load()) == c.conns })
		if got := used(f); len(got) != c.paths {
			t.Errorf("%+v uses ports %v, want %d of them", c.params, got, c.paths)
		}
		exchange(t, f, 1<<20, 1<<20)
		f.ended(p.x)
	}
	f := p.open(agentapi.Params{Connections: 3})
	bounded(f)
	eventually(t, "all connections stand", func() bool { return len(*p.x.session(f.id).conns.Load()) == 3 })
	_ = p.y.data[1].Close() // this path refuses connections from now on
	for _, c := range *p.x.session(f.id).conns.Load() {
		if c.net.RemoteAddr().(*net.TCPAddr).AddrPort().Port() == p.y.dataPorts[1] {
			resetNow(c.net)
		}
	}
	exchange(t, f, 20<<20, 20<<20)
	if r := f.ended(p.x); r.Reason != agentapi.ReasonClosed || r.Counters.ConnsLost == 0 {
		t.Errorf("%+v", r)
	}
}

// TestNoController checks that an agent's sessions continue without the controller, which is needed
// only to start them.
func TestNoController(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{})
	p.toX.Close()
	p.toY.Close()
	p.x.server.Close()
	p.y.server.Close()
	exchange(t, f, 10<<20, 10<<20)
}

// TestFlood checks that a flood of announcements whose clients never connect is bounded and
// expires, and that live sessions are not affected.
func TestFlood(t *testing.T) {
	p := newPair(t, func(x, y *Config) {
		for _, c := range []*Config{x, y} {
			c.MaxSessions, c.PrepareTimeout = 50, 5*time.Second
		}
	})
	f := p.open(agentapi.Params{})
	bounded(f)
	mustWrite(t, f.client, "before ")
	refused := 0
	for i := range 200 {
		g := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
		x, y := p.requests(g, netip.AddrPortFrom(p.clientAddr, uint16(1000+i)), agentapi.Params{})
		if _, err := p.toY.Prepare(context.Background(), y); control.CodeOf(err) == control.CodeFull {
			refused++
		}
		if _, err := p.toX.Prepare(context.Background(), x); control.CodeOf(err) == control.CodeFull {
			refused++
		}
	}
	if refused == 0 || len(p.x.list()) > 50 {
		t.Errorf("%d refused, %d sessions", refused, len(p.x.list()))
	}
	eventually(t, "the flood has passed", func() bool { return len(p.x.list()) == 1 && len(p.y.list()) == 1 })
	mustWrite(t, f.client, "after")
	_ = f.client.CloseWrite()
	mustReadAll(t, f.server, "before after")
}

// TestSlowReader checks that a reader that reads little at a time gets everything.
func TestSlowReader(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{Connections: 3, ChunkBytes: 32 << 10, Queue: 2})
	const n = 8 << 20
	sent := make(chan result, 1)
	go func() {
		s, err := sendAll(f.client, n, 1)
		_ = f.client.CloseWrite()
		sent <- result{s, n, err}
	}()
	slow := make(chan result, 1)
	go func() {
		s, m, err := sum(slowly{f.server})
		slow <- result{s, m, err}
	}()
	a, b := <-sent, <-slow
	if a.err != nil || b.err != nil || a.n != b.n || a.sum != b.sum {
		t.Errorf("sent %d %v, got %d %v", a.n, a.err, b.n, b.err)
	}
}

// TestSlowToTheEnd checks that a slow server gets everything from its agent after both ends have
// closed and the client's agent has finished, however long that takes.
func TestSlowToTheEnd(t *testing.T) {
	p := newPair(t, func(x, y *Config) {
		for _, c := range []*Config{x, y} {
			c.ConnTimeout, c.PeerTimeout = 4*time.Second, 5*time.Second
			c.Beat = 200 * time.Millisecond
			c.InitialWindow = 16 << 20 // the whole transfer
		}
	})
	f := p.open(agentapi.Params{Connections: 2})
	if err := f.server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	const n = 12 << 20
	sent := make(chan result, 1)
	go func() {
		s, err := sendAll(f.client, n, 1)
		_ = f.client.CloseWrite()
		sent <- result{s, n, err}
	}()
	// The server reads a little, then waits.
	h := sha256.New()
	if _, err := io.CopyN(h, f.server, 2<<20); err != nil {
		t.Fatal(err)
	}
	want := <-sent
	if r := f.ended(p.x); r.Reason != agentapi.ReasonClosed {
		t.Fatalf("X ended %+v", r)
	}
	pause.For(5500*time.Millisecond, "longer than a silent peer is borne")
	m, err := io.Copy(h, f.server)
	if err != nil || m != n-2<<20 || [32]byte(h.Sum(nil)) != want.sum {
		t.Errorf("the rest: %d bytes, %v", m, err)
	}
	if r := f.ended(p.y); r.Reason != agentapi.ReasonClosed {
		t.Errorf("Y ended %+v", r)
	}
}

// slowly reads 8 KiB each millisecond.
type slowly struct{ r io.Reader }

func (s slowly) Read(b []byte) (int, error) {
	pause.For(time.Millisecond, "the pace of the reader")
	return s.r.Read(b[:min(len(b), 8<<10)])
}
