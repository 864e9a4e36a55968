package sos

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/sos"
)

// cluster is a WAN with two agents at each site.
func cluster(name string) lab.Topology {
	top := lab.WAN(name, wan)
	for host, sw := range map[string]string{"x2": "s1", "y2": "s2"} {
		top.Hosts = append(top.Hosts, lab.Host{Name: host, Agent: true})
		top.Links = append(top.Links, lab.Both(host, sw, delayline.Params{}))
	}
	return top
}

// TestClusterShares sets up many connections at once: each agent of a site gets its share,
// and a draining one gets none.
func TestClusterShares(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster("sosclus"), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	const n = 40
	conns := w.open(n)
	for _, a := range w.agentInfos() {
		if a.Sessions < n/2-4 || a.Sessions > n/2+4 {
			t.Errorf("agent %s has %d sessions of %d, want about half", a.Name, a.Sessions, n)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	w.clean()
	w.post("agents/x2/drain", control.DrainRequest{On: true}, nil)
	for _, c := range w.open(4) {
		defer c.Close()
	}
	for _, r := range w.sessions("live") {
		if r.ClientAgent != "x" {
			t.Errorf("session at %s, which is draining", r.ClientAgent)
		}
	}
}

// open opens n connections at once and waits until all are live sessions.
func (w *world) open(n int) []*net.TCPConn {
	w.t.Helper()
	var mu sync.Mutex
	var conns []*net.TCPConn
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
			defer cancel()
			c, err := w.dial(ctx, w.serverAddr(80))
			if err != nil {
				w.t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		})
	}
	all.Wait()
	w.eventually("all sessions are live", func() bool {
		live := 0
		for _, r := range w.sessions("live") {
			if r.State == sos.StateLive {
				live++
			}
		}
		return live == n
	})
	return conns
}

// TestLostAgentIsAvoided kills one agent of a cluster. Once the controller knows that the
// agent is silent, new sessions use the other one.
func TestLostAgentIsAvoided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster("sosavoid"), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.agents["x"].kill()
	w.eventually("the agent is known to be silent", func() bool {
		for _, a := range w.agentInfos() {
			if a.Name == "x" {
				return a.State == agents.Silent
			}
		}
		return false
	})
	c := w.open(1)[0]
	defer c.Close()
	if r := w.live(); r.ClientAgent != "x2" {
		t.Errorf("the session is at %s", r.ClientAgent)
	}
	w.agents["x"].start(w)
	w.eventually("the agent is back", func() bool { return w.agentInfos()[0].State == agents.Up })
}
