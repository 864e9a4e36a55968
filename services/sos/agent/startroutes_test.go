package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// starter returns the start routes of an agent in the first namespace of a chain, which has the
// address 10.77.1.1 and the gateway 10.77.1.2. in runs a function in that namespace.
func starter(t *testing.T, n *chain) (r *startRoutes, in func(f func())) {
	t.Helper()
	r = newStartRoutes(&Agent{log: slog.New(slog.DiscardHandler)})
	in = func(f func()) {
		t.Helper()
		if err := inNamespace(n.c, func() error { f(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	in(func() {
		if err := r.open(n.client); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { in(r.close) })
	return r, in
}

// TestStartRouteIsTheKernels checks that a start route is the kernel's route for that source, with
// a window, and that there is none if the kernel has several next hops.
func TestStartRouteIsTheKernels(t *testing.T) {
	n := newChain(t, 1500, false)
	r, in := starter(t, n)
	peer := n.server
	aged := func() { // makes the next call look the route up again
		for _, x := range r.wanted {
			x.installed = x.installed.Add(-2 * routeAge)
		}
	}
	want := func(window int) string {
		t.Helper()
		in(func() {
			via, err := routeTo(peer)
			if err != nil {
				t.Fatal(err)
			}
			r.request(n.client, peer, via, window)
		})
		return tableOf(n.c, n.client)
	}
	if got := want(100); !strings.Contains(got, "via "+n.clientOfX.String()) || !strings.Contains(got, "initcwnd 100") || strings.Contains(got, "mtu") {
		t.Errorf("%q", got)
	}
	if got := want(1000); !strings.Contains(got, "initcwnd 100") {
		t.Errorf("with another that wants more: %q", got)
	}
	if got := want(50); !strings.Contains(got, "initcwnd 50") || strings.Count(got, "\n") != 1 {
		t.Errorf("with another that wants less: %q", got)
	}
	aged()
	ip(t, fmt.Sprintf("-n %s route add %s via %s mtu 1400 table 100", n.c, peer, "10.77.1.77"))
	ip(t, fmt.Sprintf("-n %s rule add from %s lookup 100", n.c, n.client))
	if got := want(1000); !strings.Contains(got, "via 10.77.1.77") || !strings.Contains(got, "mtu 1400") || strings.Count(got, "\n") != 1 {
		t.Errorf("with a route for the source: %q", got)
	}
	aged()
	ip(t, fmt.Sprintf("-n %s rule del from %s lookup 100", n.c, n.client))
	ip(t, fmt.Sprintf("-n %s route replace default nexthop via %s nexthop via 10.77.1.78", n.c, n.clientOfX))
	if got := want(100); got != "" {
		t.Errorf("with two next hops: %q", got)
	}
}

// TestStartRoutesLeft checks that the routes that a killed agent has left are removed when the next
// one starts, also those of an address that the machine no longer has. Routes of another agent's
// address, and those of other programs, stay.
func TestStartRoutesLeft(t *testing.T) {
	n := newChain(t, 1500, false)
	gone, other := netip.MustParseAddr("10.77.1.9"), netip.MustParseAddr("10.77.1.10")
	for _, own := range []netip.Addr{gone, other} {
		ip(t, fmt.Sprintf("-n %s addr add %s/24 dev x", n.c, own))
		if err := inNamespace(n.c, func() error {
			killed := newStartRoutes(&Agent{log: slog.New(slog.DiscardHandler)})
			via, err := routeTo(n.server)
			if err == nil {
				err = killed.open(own)
			}
			killed.request(own, n.server, via, 100)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := tableOf(n.c, own); !strings.Contains(got, "initcwnd 100") {
			t.Fatalf("of %v: %q", own, got)
		}
	}
	ip(t, fmt.Sprintf("-n %s addr del %s/24 dev x", n.c, gone))
	ip(t, fmt.Sprintf("-n %s rule add from 10.99.0.1 lookup 100 priority %d", n.c, startPriority))
	starter(t, n)
	if got := startRulesOf(t, n, n.c); strings.Contains(got, gone.String()+" ") || !strings.Contains(got, other.String()) || !strings.Contains(got, "10.99.0.1") {
		t.Errorf("rules: %q", got)
	}
	if tableOf(n.c, gone) != "" || tableOf(n.c, other) == "" {
		t.Errorf("routes: %q, %q", tableOf(n.c, gone), tableOf(n.c, other))
	}
}

// TestStartRoutesExpire checks that routes are removed when they are no longer needed.
func TestStartRoutesExpire(t *testing.T) {
	n := newChain(t, 1500, true)
	r, in := starter(t, n)
	in(func() {
		via, err := routeTo(n.server)
		if err != nil {
			t.Fatal(err)
		}
		r.request(n.client, n.server, via, 100)
		r.expire(time.Now())
	})
	if got := tableOf(n.c, n.client); !strings.Contains(got, "initcwnd 100") {
		t.Errorf("%q", got)
	}
	in(func() { r.expire(time.Now().Add(2 * startRouteLifetime)) })
	if got := tableOf(n.c, n.client); got != "" {
		t.Errorf("left: %q", got)
	}
}

// TestStartRouteIsBounded checks that the highest rate and the longest round trip that the agent
// accepts, from a controller or from its file, give a route with the largest initial window and no
// more.
func TestStartRouteIsBounded(t *testing.T) {
	n := newChain(t, 1500, false)
	r, in := starter(t, n)
	a := r.a
	a.starts = r
	told := agentapi.Path{Rate: agentapi.MaxPathRate, RTT: agentapi.Duration(time.Minute)}
	if err := checkPaths([]agentapi.Path{told}); err != nil {
		t.Fatal(err)
	}
	for name, know := range map[string]func(req *agentapi.PrepareRequest){
		"a controller": func(req *agentapi.PrepareRequest) { req.Paths = []agentapi.Path{told} },
		"the file": func(req *agentapi.PrepareRequest) {
			stored := storedPath{Peer: req.Peer.Addr, Port: req.Peer.DataPorts[0], Rate: maxStoredRate, RTT: time.Minute.Microseconds(), Segment: 500, Seen: time.Now()}
			if err := stored.check(time.Now()); err != nil {
				t.Fatal(err)
			}
			a.pacers.of(netip.AddrPortFrom(stored.Peer, stored.Port)).restore(stored, time.Now())
		},
	} {
		a.pacers = newPacers(a)
		req := agentapi.PrepareRequest{Role: agentapi.RoleClient, Peer: agentapi.Peer{Addr: n.server, DataPorts: []uint16{7000}}}
		know(&req)
		segments := a.paths(&req)[0].initialWindow(1)
		in(func() {
			r.expire(time.Now().Add(2 * startRouteLifetime))
			via, err := routeTo(n.server)
			if err != nil {
				t.Fatal(err)
			}
			a.setInitialWindow(n.client, &req, via, agentapi.Params{Connections: 1})
		})
		if got, want := tableOf(n.c, n.client), fmt.Sprintf("initcwnd %d ", maxInitCwnd); segments <= maxInitCwnd || !strings.Contains(got, want) {
			t.Errorf("with the rate of %s, of which %d segments follow: %q, want %q", name, segments, got, want)
		}
	}
}

// tableOf returns the routes for starts from an address.
func tableOf(ns string, own netip.Addr) string {
	args := []string{"-n", ns, "route", "show", "table", strconv.Itoa(startTable(own))}
	if own.Is6() {
		args = append([]string{"-6"}, args...)
	}
	out, _ := exec.Command("ip", args...).Output() // it fails while there is no such table
	return string(out)
}

// startRulesOf returns the rules that select such tables.
func startRulesOf(t *testing.T, n *chain, ns string) string {
	t.Helper()
	out, err := exec.Command("ip", n.family, "-n", ns, "rule", "show", "priority", strconv.Itoa(startPriority)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
