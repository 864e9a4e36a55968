package sos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/sos/agent"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Addresses of the hosts in a row.
var (
	lineClient = netip.MustParseAddr("10.0.1.1")
	lineX      = netip.MustParseAddr("10.0.2.1")
	lineY      = netip.MustParseAddr("10.0.2.2")
	lineServer = netip.MustParseAddr("10.0.3.2")
)

// line is a client, two distant agents and a server, in a row. There is no controller: the
// test announces sessions to the agents.
type line struct {
	*world
	change   func(*agent.Config)
	toX, toY *agentapi.Client
	port     uint16 // of the client, that of the last session
}

// lineTopology returns four hosts in a row, with 100 Mbit/s and 80 ms between the agents. Their TCP
// is one that does not pace itself, whatever the machine's default.
func lineTopology() lab.Topology {
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	end := func(node string, a netip.Addr) lab.End {
		return lab.End{Node: node, Addresses: []netip.Prefix{netip.PrefixFrom(a, 24)}}
	}
	host := func(name string, via netip.Addr) lab.Host {
		return lab.Host{Name: name, Sysctls: map[string]string{"net.ipv4.tcp_congestion_control": "reno"}, Routes: []lab.Route{{To: everywhere, Via: via}}}
	}
	clientOfX, serverOfY := lineClient.Next(), lineServer.Prev()
	wan := delayline.Params{Rate: 100e6, Delay: 40 * time.Millisecond}
	return lab.Topology{
		Name: "sosline",
		Hosts: []lab.Host{
			host("client", clientOfX), host("x", lineY), host("y", lineX), host("server", serverOfY),
		},
		Links: []lab.Link{
			{A: end("client", lineClient), B: end("x", clientOfX)},
			{A: end("x", lineX), B: end("y", lineY), AtoB: wan, BtoA: wan},
			{A: end("y", serverOfY), B: end("server", lineServer)},
		},
	}
}

func newLine(t *testing.T, change func(*agent.Config)) *line {
	t.Helper()
	l := &line{world: &world{t: t, lab: lab.New(t, lineTopology()), agents: map[string]*agentProcess{}}, change: change, port: 40000}
	l.toX, l.toY = l.client("x"), l.client("y")
	return l
}

// startAgents starts both agents.
func (l *line) startAgents() {
	l.t.Helper()
	for host, at := range map[string]netip.Addr{"x": lineX, "y": lineY} {
		l.startAgent(host, func(c *agent.Config) {
			*c = agent.DefaultConfig()
			c.DataAddr = at
			if l.change != nil {
				l.change(c)
			}
		})
	}
}

// client returns a client of the agent on a host.
func (l *line) client(host string) *agentapi.Client {
	l.t.Helper()
	dial := func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = l.lab.Host(host).Do(func() error {
			c, err = (&net.Dialer{Timeout: testTimeout}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
	c, err := agentapi.NewClient("http://"+agent.DefaultConfig().Listen, nil, dial)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

// carried is a session with the ends of its connection.
type carried struct {
	id             agentapi.SessionID
	client, server *net.TCPConn
}

// connect makes the agents carry a new connection.
func (l *line) connect(params agentapi.Params) *carried {
	l.t.Helper()
	must := func(err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	var ln net.Listener
	must(l.lab.Host("server").Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(lineServer, 0).String())
		return err
	}))
	defer ln.Close()
	l.port++
	from := netip.AddrPortFrom(lineClient, l.port)
	ports := agent.DefaultConfig().DataPorts
	req := agentapi.PrepareRequest{
		ID: agentapi.NewSessionID(), Key: agentapi.NewKey(), Client: from, Server: ln.Addr().(*net.TCPAddr).AddrPort(), Params: params,
		Role: agentapi.RoleServer, Peer: agentapi.Peer{Addr: lineX, DataPorts: ports},
	}
	_, err := l.toY.Prepare(ctx, req)
	must(err)
	req.Role, req.Peer = agentapi.RoleClient, agentapi.Peer{Addr: lineY, DataPorts: ports}
	at, err := l.toX.Prepare(ctx, req)
	must(err)
	must(l.toY.Commit(ctx, req.ID))
	must(l.toX.Commit(ctx, req.ID))
	s := &carried{id: req.ID}
	s.client, err = l.dial(ctx, netip.AddrPortFrom(at.Addr, at.Port), from)
	must(err)
	must(ln.(*net.TCPListener).SetDeadline(time.Now().Add(testTimeout)))
	c, err := ln.Accept()
	must(err)
	s.server = c.(*net.TCPConn)
	l.t.Cleanup(func() { _ = s.client.Close(); _ = s.server.Close() })
	return s
}

// transfer carries bytes from the server to the client of a new session, and ends it.
func (l *line) transfer(bytes int64) {
	l.t.Helper()
	s := l.connect(agentapi.Params{})
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(s.server, content(1), bytes)
		sent <- errors.Join(err, s.server.Close())
	}()
	_ = s.client.SetDeadline(time.Now().Add(2 * testTimeout))
	if n, err := io.Copy(io.Discard, s.client); n != bytes || err != nil {
		l.t.Fatalf("%d of %d bytes came: %v", n, bytes, err)
	}
	if err := errors.Join(<-sent, s.client.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		l.t.Fatal(err)
	}
}

// began opens a session and returns the server's agent's description of its start.
func (l *line) began() (text string) {
	l.t.Helper()
	id := l.connect(agentapi.Params{}).id
	l.eventually("the session's record", func() bool {
		all, err := l.toY.Sessions(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		for _, s := range all {
			if s.ID == id {
				text = s.Counters.Start
			}
		}
		return text != ""
	})
	return text
}

// beganKnown checks that a session starts at a known rate, and no faster.
func (l *line) beganKnown() {
	l.t.Helper()
	text := l.began()
	var pace, rate float64
	if _, err := fmt.Sscanf(text, "%f Mbit/s: the path carries %f", &pace, &rate); err != nil || rate == 0 || pace > rate {
		l.t.Errorf("a session on a known path began with %q (%v)", text, err)
	}
}

// routes returns the rules and routes of a host, one a line.
func (l *line) routes(host string) string {
	l.t.Helper()
	var all strings.Builder
	for _, args := range [][]string{{"-4", "rule"}, {"-4", "route", "show", "table", "all"}} {
		out, err := l.lab.Host(host).Command(l.t.Context(), "ip", args...).CombinedOutput()
		if err != nil {
			l.t.Fatalf("ip %v on %s: %v: %s", args, host, err, out)
		}
		all.Write(out)
	}
	return all.String()
}

// A session begins at the rate that another has found, or that a file remembers, with an initial
// window as large. Nothing of that is left when the agents have ended.
func TestStartsAtKnownRate(t *testing.T) {
	t.Parallel()
	memory := filepath.Join(t.TempDir(), "paths")
	l := newLine(t, func(c *agent.Config) { c.Memory = memory + "-" + c.DataAddr.String() })
	before := map[string]string{"x": l.routes("x"), "y": l.routes("y")}
	l.startAgents()
	if text := l.began(); !strings.Contains(text, "nothing is known") {
		t.Errorf("the first session began with %q", text)
	}
	l.transfer(30 << 20)
	l.transfer(1 << 20)
	l.beganKnown()
	paths, err := l.toY.Paths(t.Context())
	if err != nil || len(paths) != 1 || paths[0].Peer != lineX || paths[0].Rate == 0 || time.Duration(paths[0].RTT) < 70*time.Millisecond {
		t.Errorf("paths: %+v, %v", paths, err)
	}
	if routes := l.routes("y"); !strings.Contains(routes, lineX.String()) || !strings.Contains(routes, "initcwnd") {
		t.Errorf("routes for the start: %q", routes)
	}
	l.agents["y"].kill()
	l.agents["x"].terminate()
	if left := l.routes("x"); left != before["x"] {
		t.Errorf("left of an agent that was stopped: %q, before %q", left, before["x"])
	}
	l.startAgents()
	// The rule for the table exists again, and the table has no route.
	if left := l.routes("y"); strings.Contains(left, "initcwnd") || strings.Count(left, "\n") != strings.Count(before["y"], "\n")+1 {
		t.Errorf("after kill -9 and a new start: %q, before %q", left, before["y"])
	}
	l.transfer(30 << 20)
	for host, was := range before {
		l.agents[host].terminate()
		if left := l.routes(host); left != was {
			t.Errorf("left on %s: %q, before %q", host, left, was)
		}
	}
	l.startAgents()
	l.beganKnown()
}

// Sessions of a path share it by their weights: of two that begin together, the one of three times
// the weight carries more. Which share exactly each gets is the subject of TestMaxMinShare of
// services/sos/agent.
func TestWeights(t *testing.T) {
	t.Parallel()
	l := newLine(t, nil)
	l.startAgents()
	const heavy, firstBytes, bytes = 3, 20 << 20, 20 << 20
	type arrived struct{ session, bytes int }
	arrives := make(chan arrived)
	deadline := time.Now().Add(2 * time.Minute)
	for i, weight := range []int{1, heavy} {
		s := l.connect(agentapi.Params{Weight: weight})
		_ = errors.Join(s.client.SetDeadline(deadline), s.server.SetDeadline(deadline))
		go func() { _, _ = io.Copy(s.server, content(1)) }() // ends with the connection
		go func() {
			for b := make([]byte, 64<<10); ; {
				n, err := s.client.Read(b)
				select {
				case arrives <- arrived{i, n}:
				case <-t.Context().Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	var all int
	var later [2]int
	for all < firstBytes+bytes {
		a := <-arrives
		if a.bytes == 0 {
			t.Fatalf("session %d has ended after %d bytes", a.session, all)
		}
		if all += a.bytes; all > firstBytes {
			later[a.session] += a.bytes
		}
	}
	if later[1] <= later[0] {
		t.Errorf("a session of weight %d has carried %d bytes, and one of weight 1 %d", heavy, later[1], later[0])
	}
}
