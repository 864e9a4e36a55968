package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	goleak.VerifyTestMain(m)
}

// pair is two agents in this process, on loopback addresses.
type pair struct {
	t            testing.TB
	x, y         *Agent
	toX, toY     *agentapi.Client
	clientAddr   netip.Addr
	serverAddr   netip.Addr
	serverListen *net.TCPListener
	marks        map[agentapi.Role]agentapi.Marks // marks of the sessions that are opened
}

// testTimeout bounds every wait of these tests. It is only reached when a test fails.
const testTimeout = 30 * time.Second

// These are the addresses of a test's four machines, all on the loopback interface.
var (
	addrClient = netip.MustParseAddr("127.0.0.1")
	addrX      = netip.MustParseAddr("127.0.0.2")
	addrY      = netip.MustParseAddr("127.0.0.3")
	addrServer = netip.MustParseAddr("127.0.0.4")
)

func testConfig(addr netip.Addr) Config {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.DataAddr = addr
	cfg.DataPorts = []uint16{0}
	cfg.InitialWindow = 1 << 20
	// Silence is tested between processes. Here a peer on a machine that is busy with other tests
	// must not look lost.
	cfg.ConnTimeout, cfg.PeerTimeout = testTimeout, 2*testTimeout
	if os.Getenv("SOS_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

func newPair(t testing.TB, change func(x, y *Config)) *pair {
	t.Helper()
	p := &pair{t: t, clientAddr: addrClient, serverAddr: addrServer}
	cx, cy := testConfig(addrX), testConfig(addrY)
	if change != nil {
		change(&cx, &cy)
	}
	p.x, p.toX = startAgent(t, cx)
	p.y, p.toY = startAgent(t, cy)
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.serverAddr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	p.serverListen = ln
	t.Cleanup(func() { _ = ln.Close() })
	return p
}

func startAgent(t testing.TB, cfg Config) (*Agent, *agentapi.Client) {
	t.Helper()
	a, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := agentapi.NewClient("http://"+a.ControlAddr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		a.Close()
		if n := a.pipes.inUse.Load(); n != 0 {
			t.Errorf("agent %v still uses %d pipes", cfg.DataAddr, n)
		}
	})
	return a, c
}

// flow is one session with its two end hosts.
type flow struct {
	p      *pair
	id     agentapi.SessionID
	key    agentapi.Key
	client *net.TCPConn
	server *net.TCPConn
}

// open sets a session up as the controller does, and connects both ends.
func (p *pair) open(params agentapi.Params) *flow {
	p.t.Helper()
	f, err := p.tryOpen(params)
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *pair) tryOpen(params agentapi.Params) (*flow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	from, err := reserve(netip.AddrPortFrom(p.clientAddr, 0), "")
	if err != nil {
		return nil, err
	}
	x, y := p.requests(f, netip.AddrPortFrom(p.clientAddr, from.port), params)
	if _, err := p.toY.Prepare(ctx, y); err != nil {
		from.close()
		return nil, err
	}
	at, err := p.toX.Prepare(ctx, x)
	if err != nil {
		from.close()
		return nil, err
	}
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, err := p.serverListen.AcceptTCP()
		if err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	if err := p.toY.Commit(ctx, f.id); err != nil {
		return nil, err
	}
	if f.server = <-accepted; f.server == nil {
		return nil, errors.New("no connection at the server")
	}
	if err := p.toX.Commit(ctx, f.id); err != nil {
		return nil, err
	}
	f.client, err = from.dial(ctx, netip.AddrPortFrom(at.Addr, at.Port))
	if err == nil {
		err = f.client.SetLinger(-1) // an agent's socket resets when it is closed, and a client's does not
	}
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { _ = f.client.Close(); _ = f.server.Close() })
	return f, nil
}

// requests returns the two announcements of a session.
func (p *pair) requests(f *flow, client netip.AddrPort, params agentapi.Params) (x, y agentapi.PrepareRequest) {
	server := p.serverListen.Addr().(*net.TCPAddr).AddrPort()
	x = agentapi.PrepareRequest{
		ID: f.id, Key: f.key, Role: agentapi.RoleClient, Client: client, Server: server, Params: params,
		Peer: agentapi.Peer{Addr: p.y.cfg.DataAddr, DataPorts: p.y.DataPorts()},
	}
	y = x
	y.Role = agentapi.RoleServer
	x.Marks, y.Marks = p.marks[x.Role], p.marks[y.Role]
	y.Peer = agentapi.Peer{Addr: p.x.cfg.DataAddr, DataPorts: p.x.DataPorts()}
	return x, y
}

// ended waits for the record of the flow's session at an agent.
func (f *flow) ended(a *Agent) agentapi.SessionRecord {
	f.p.t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	for {
		list, changed := a.server.Records()
		for _, r := range list {
			if r.ID == f.id {
				return r
			}
		}
		select {
		case <-changed:
		case <-deadline.C:
			f.p.t.Fatalf("session at %v has not ended: %+v", a.cfg.DataAddr, a.session(f.id).describe())
		}
	}
}

// sendAll writes n pseudo-random bytes and returns their SHA-256.
func sendAll(w io.Writer, n int64, seed uint64) ([32]byte, error) {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	h := sha256.New()
	_, err := io.CopyN(io.MultiWriter(w, h), rand.NewChaCha8(key), n)
	return [32]byte(h.Sum(nil)), err
}

// sum reads to the end, and returns the SHA-256 and the number of bytes.
func sum(r io.Reader) ([32]byte, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return [32]byte(h.Sum(nil)), n, err
}

// eventually polls until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !f() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// fillBacklog fills a listener's backlog, so that it accepts no further connection.
func fillBacklog(t testing.TB, ln net.Listener) {
	t.Helper()
	rc, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.Listen(int(fd), 0) })
	for range 4 {
		d := net.Dialer{Timeout: time.Second}
		c, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the listener takes every connection")
}
