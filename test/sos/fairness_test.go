package sos

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestFairByClient checks that with the fairness of clients, the agent near the server lets a client
// with five downloads have as much of the path as a client with one.
func TestFairByClient(t *testing.T) {
	t.Parallel()
	top := lab.WAN("sosfair", wan)
	top.Hosts = append(top.Hosts, lab.Host{Name: "client2"})
	top.Links = append(top.Links, lab.Both("client2", "s1", delayline.Params{}))
	w := newWorld(t, top, options{quiet: true})
	w.allow(func(e *entry) { e.Tuning = sos.Tuning{Fairness: string(agentapi.FairnessClient)} })
	w.serve(80, func(c *net.TCPConn) {
		for block := make([]byte, 64<<10); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	const many = 5
	conns := w.open(many)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	second := w.lab.Host("client2")
	err := second.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.serverAddr(80).String())
		if err == nil {
			conns = append(conns, c.(*net.TCPConn))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		defer c.Close()
	}
	y := w.agentClient("y")
	w.eventually("both clients may send as much", func() bool {
		list, err := y.Sessions(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sessions, paces := map[netip.Addr]int{}, map[netip.Addr]float64{}
		for _, s := range list {
			sessions[s.Client.Addr()]++
			paces[s.Client.Addr()] += float64(s.Counters.Pace)
		}
		first, other := w.lab.Host("client").Addr(), second.Addr()
		return sessions[first] == many && sessions[other] == 1 && paces[other] > 0 && paces[first] > 0.9*paces[other] && paces[first] < 1.1*paces[other]
	})
}

// agentClient returns a client of an agent's control server.
func (w *world) agentClient(host string) *agentapi.Client {
	w.t.Helper()
	tls, err := pki.Client(pki.Files{
		Cert: filepath.Join(w.keys, "controller.crt"), Key: filepath.Join(w.keys, "controller.key"), CA: filepath.Join(w.keys, "ca.crt"),
	}, pki.RoleAgent)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := agentapi.NewClient("https://"+w.agents[host].cfg.Listen, tls, w.lab.Control().DialContext)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}
