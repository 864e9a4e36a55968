package agent

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// warmLists returns the lists by which a controller makes X open connections to Y: that of X, and
// that of Y.
func (p *pair) warmLists(params agentapi.Params) (x, y agentapi.WarmPeers) {
	one := agentapi.WarmPeer{ID: agentapi.NewSessionID(), Key: agentapi.NewKey(), Params: params}
	x = agentapi.WarmPeers{Lifetime: agentapi.Duration(time.Minute), Peers: []agentapi.WarmPeer{one}}
	y = agentapi.WarmPeers{Lifetime: x.Lifetime, Peers: []agentapi.WarmPeer{one}}
	x.Peers[0].Peer = agentapi.Peer{Addr: p.y.cfg.DataAddr, DataPorts: p.y.DataPorts()}
	y.Peers[0].Peer = agentapi.Peer{Addr: p.x.cfg.DataAddr}
	return x, y
}

// warmUp makes X open connections to Y, and returns the result.
func (p *pair) warmUp(x, y agentapi.WarmPeers) agentapi.WarmStatus {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := p.toY.ExpectPeers(ctx, y); err != nil {
		p.t.Fatal(err)
	}
	all, err := p.toX.WarmPeers(ctx, x)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(all) != len(x.Peers) {
		p.t.Fatalf("%d results, want %d", len(all), len(x.Peers))
	}
	if len(all) == 0 {
		return agentapi.WarmStatus{}
	}
	return all[0]
}

// TestWarmBeforeFirstSession checks that the first session of two agents uses connections that were
// opened before it, carries all bytes, and leaves the connections for the next session.
func TestWarmBeforeFirstSession(t *testing.T) {
	for _, c := range []struct {
		name   string
		params agentapi.Params
		change func(x, y *Config)
		want   int
	}{
		{"plain", agentapi.Params{}, nil, 2},
		{"TLS", agentapi.Params{TLS: true}, withTLS(t, true), 2},
		{"one connection", agentapi.Params{Connections: 1}, nil, 1},
		{"three paths", agentapi.Params{Paths: 3}, func(_, y *Config) { y.DataPorts = []uint16{0, 0, 0, 0} }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, c.change)
			x, y := p.warmLists(c.params)
			if s := p.warmUp(x, y); s.Ready != c.want || s.Opened != c.want || s.Error != "" {
				t.Errorf("%+v, want %d connections", s, c.want)
			}
			if x, y = p.warmLists(c.params); p.warmUp(x, y).Opened != 0 {
				t.Error("connections are opened again")
			}
			for range 2 {
				f := p.open(c.params)
				eventually(t, "the session has its connections", func() bool { return p.x.session(f.id).counters().ConnsOpen >= c.want })
				exchange(t, f, 1<<20, 1<<20)
				if r := f.ended(p.x); r.Counters.ConnsWarm < c.want {
					t.Errorf("%d warm connections, want %d", r.Counters.ConnsWarm, c.want)
				}
				eventually(t, "the connections are idle again", func() bool { return p.x.warm.size() >= c.want })
			}
		})
	}
}

// TestUnusedWarmAreClosed checks that connections that no session has used are closed when the
// controller removes the peer from the list, or has ended, and that used ones stay.
func TestUnusedWarmAreClosed(t *testing.T) {
	p := newPair(t, nil)
	x, y := p.warmLists(agentapi.Params{})
	accepted := func() int {
		p.y.acceptor.mu.Lock()
		defer p.y.acceptor.mu.Unlock()
		return len(p.y.acceptor.accepted)
	}
	p.warmUp(x, y)
	x.Peers = nil
	p.warmUp(x, y)
	if n := p.x.warm.size(); n != 0 {
		t.Errorf("without the peer: %d idle connections", n)
	}
	eventually(t, "the peer has closed them, too", func() bool { return accepted() == 0 })

	x, y = p.warmLists(agentapi.Params{})
	x.Lifetime = agentapi.Duration(50 * time.Millisecond)
	p.warmUp(x, y)
	eventually(t, "they are closed after the lifetime", func() bool { return p.x.warm.size() == 0 && accepted() == 0 })

	x, y = p.warmLists(agentapi.Params{})
	p.warmUp(x, y)
	f := p.open(agentapi.Params{})
	eventually(t, "the session has its connections", func() bool { return p.x.session(f.id).counters().ConnsOpen == 2 })
	exchange(t, f, 1000, 1000)
	f.ended(p.x)
	eventually(t, "the connections are idle", func() bool { return p.x.warm.size() == 2 })
	x.Peers = nil
	p.warmUp(x, y)
	if n := p.x.warm.size(); n != 2 {
		t.Errorf("%d idle connections that a session has used, want 2", n)
	}
}

// TestWarmAreReplaced checks that connections which the peer has closed, or which the controller
// wants to be renewed, are opened again.
func TestWarmAreReplaced(t *testing.T) {
	p := newPair(t, nil)
	x, y := p.warmLists(agentapi.Params{})
	p.warmUp(x, y)
	p.y.acceptor.mu.Lock()
	for c := range p.y.acceptor.accepted {
		resetNow(c)
	}
	p.y.acceptor.mu.Unlock()
	k := p.x.warmKeys(&x.Peers[0])[0]
	eventually(t, "the peer has closed the connections", func() bool {
		p.x.warm.mu.Lock()
		defer p.x.warm.mu.Unlock()
		return !slices.ContainsFunc(p.x.warm.idle[k], func(c warmConn) bool { return !isClosed(c.conn) })
	})
	x, y = p.warmLists(agentapi.Params{})
	if s := p.warmUp(x, y); s.Opened != 2 || s.Ready != 2 {
		t.Errorf("after the peer has closed them: %+v", s)
	}
	x, y = p.warmLists(agentapi.Params{})
	x.Peers[0].Renew = true
	if s := p.warmUp(x, y); s.Opened != 2 || s.Ready != 2 {
		t.Errorf("renewed: %+v", s)
	}
	eventually(t, "the old ones are closed", func() bool { return p.x.warm.size() == 2 })
	p.x.warm.mu.Lock()
	for i := range p.x.warm.idle[k] {
		p.x.warm.idle[k][i].since = time.Now().Add(-lastWarmFactor * p.x.cfg.WarmIdle * 2 / 3)
	}
	p.x.warm.mu.Unlock()
	x, y = p.warmLists(agentapi.Params{})
	if s := p.warmUp(x, y); s.Opened != 2 {
		t.Errorf("after most of their time: %+v", s)
	}
	eventually(t, "the oldest are closed", func() bool { return p.x.warm.size() == 2 })
}

// TestWarmStrangers checks that a host that does not hold the key of an expected peer gets no
// answer, that a recorded opening is not accepted again, that a peer opens only so many
// connections, and that openings are refused after the list's lifetime.
func TestWarmStrangers(t *testing.T) {
	p := newPair(t, nil)
	_, y := p.warmLists(agentapi.Params{})
	if err := p.toY.ExpectPeers(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	id, key := y.Peers[0].ID, y.Peers[0].Key
	answered := func(o wire.Opening, key agentapi.Key) bool {
		t.Helper()
		c, err := net.Dial("tcp", p.dataPort(p.y))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write(o.AppendTo(nil, key[:]))
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		_, err = io.ReadFull(c, make([]byte, wire.AnswerSize))
		return err == nil
	}
	if answered(wire.Opening{Session: id, Generation: 1}, agentapi.NewKey()) {
		t.Error("a wrong key is accepted")
	}
	if answered(wire.Opening{Session: agentapi.NewSessionID(), Generation: 1}, key) {
		t.Error("an ID that was not announced is accepted")
	}
	if !answered(wire.Opening{Session: id, Generation: 1}, key) {
		t.Error("the peer is refused")
	}
	if answered(wire.Opening{Session: id, Generation: 1}, key) {
		t.Error("an opening is accepted twice")
	}
	if answered(wire.Opening{Session: id, Index: maxOpenings, Generation: 1}, key) {
		t.Errorf("opening %d is accepted", maxOpenings)
	}
	y.Lifetime = 1
	if err := p.toY.ExpectPeers(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	if answered(wire.Opening{Session: id, Index: 1, Generation: 1}, key) {
		t.Error("an opening is accepted after the list's lifetime")
	}
}

// TestWarmUnreachable checks that a peer that does not accept connections is reported, and that the
// session that comes nevertheless works.
func TestWarmUnreachable(t *testing.T) {
	p := newPair(t, nil)
	x, y := p.warmLists(agentapi.Params{})
	y.Peers = nil
	if s := p.warmUp(x, y); s.Ready != 0 || s.Opened != 0 || !strings.Contains(s.Error, "the peer does not accept the session") {
		t.Errorf("with a peer that expects nothing: %+v", s)
	}
	x.Peers[0].Peer.DataPorts = []uint16{1}
	if s := p.warmUp(x, y); s.Ready != 0 || !strings.Contains(s.Error, "refused") {
		t.Errorf("with a port on which nobody listens: %+v", s)
	}
	f := p.open(agentapi.Params{})
	exchange(t, f, 1000, 1000)
	if r := f.ended(p.x); r.Counters.ConnsWarm != 0 {
		t.Errorf("%d warm connections", r.Counters.ConnsWarm)
	}
}

// TestWarmListsAreChecked checks that an agent refuses lists beyond the bounds, and keeps the one
// that it has.
func TestWarmListsAreChecked(t *testing.T) {
	p := newPair(t, nil)
	good, expected := p.warmLists(agentapi.Params{})
	p.warmUp(good, expected)
	for _, c := range []struct {
		name, field string
		change      func(*agentapi.WarmPeers)
	}{
		{"too many", "peers", func(w *agentapi.WarmPeers) {
			w.Peers = slices.Repeat(w.Peers, agentapi.MaxWarmPeers+1)
		}},
		{"no lifetime", "lifetime", func(w *agentapi.WarmPeers) { w.Lifetime = 0 }},
		{"too long", "lifetime", func(w *agentapi.WarmPeers) { w.Lifetime = agentapi.MaxWarmLifetime + 1 }},
		{"no ID", "peers[0].id", func(w *agentapi.WarmPeers) { w.Peers[0].ID = agentapi.SessionID{} }},
		{"an ID twice", "peers[1].id", func(w *agentapi.WarmPeers) { w.Peers = slices.Repeat(w.Peers, 2) }},
		{"no key", "peers[0].key", func(w *agentapi.WarmPeers) { w.Peers[0].Key = agentapi.Key{} }},
		{"no address", "peers[0].peer.addr", func(w *agentapi.WarmPeers) { w.Peers[0].Peer.Addr = netip.Addr{} }},
		{"itself", "peers[0].peer.addr", func(w *agentapi.WarmPeers) { w.Peers[0].Peer.Addr = addrX }},
		{"no ports", "peers[0].peer.data_ports", func(w *agentapi.WarmPeers) { w.Peers[0].Peer.DataPorts = nil }},
		{"port 0", "peers[0].peer.data_ports", func(w *agentapi.WarmPeers) { w.Peers[0].Peer.DataPorts = []uint16{0} }},
		{"many ports", "peers[0].peer.data_ports", func(w *agentapi.WarmPeers) {
			w.Peers[0].Peer.DataPorts = make([]uint16, agentapi.MaxWarmPaths+1)
		}},
		{"a rate beyond the bound", "paths[0].rate", func(w *agentapi.WarmPeers) {
			w.Peers[0].Paths = []agentapi.Path{{Rate: 2 * agentapi.MaxPathRate}}
		}},
		{"TLS without a certificate", "params.tls", func(w *agentapi.WarmPeers) { w.Peers[0].Params.TLS = true }},
	} {
		bad := agentapi.WarmPeers{Peers: slices.Clone(good.Peers), Lifetime: good.Lifetime}
		c.change(&bad)
		if _, err := p.toX.WarmPeers(t.Context(), bad); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: error %v, want one about %s", c.name, err, c.field)
		}
	}
	if n := p.x.warm.size(); n != 2 {
		t.Errorf("%d idle connections, want 2", n)
	}
}
