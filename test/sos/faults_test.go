package sos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// direct checks that the latest connection went directly.
func (w *world) direct(why string) {
	w.t.Helper()
	w.eventually("a connection went directly because of "+why, func() bool {
		past := w.sessions("past")
		return len(past) > 0 && strings.Contains(past[0].How, why)
	})
	w.clean()
}

func TestServerPortClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosclo", wan), options{})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := w.dial(ctx, w.serverAddr(80)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the client sees %v, without SOS it would see a refused connection", err)
	}
	w.direct("refused")
	if how := w.sessions("past")[0].How; how != "not established: server does not take the connection: 10.0.0.2:80: connection refused (refused)" {
		t.Errorf("what is told of the server's refusal: %s", how)
	}
}

func TestServerHostAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosabs", wan), options{quiet: true})
	w.allow(func(e *entry) { e.Servers = []string{"10.0.0.0/24"} })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	nobody := netip.MustParseAddrPort("10.0.0.200:80")
	if _, err := w.dial(ctx, nobody); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("the client sees %v, without SOS it would see an unreachable host", err)
	}
	w.clean()
}

// TestClientGivesUp has a client that is gone when its first packet is released: its kernel
// resets whatever answers it, and the session ends.
func TestClientGivesUp(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			w := newWorld(t, lab.WAN("sosgive", wan), options{quiet: true, noAgents: true})
			for _, h := range []string{"x", "y"} {
				w.startAgent(h, func(c *agent.Config) {
					if v6 {
						c.DataAddr = w.lab.Host(h).Addr6()
					}
				})
				w.addAgent(h)
			}
			w.v6 = v6
			w.allow(nil)
			client := w.lab.Host("client").Addr()
			if v6 {
				client = w.lab.Host("client").Addr6()
			}
			w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
			w.sendSYN(netip.AddrPortFrom(client, 45000), w.serverAddr(80))
			w.eventually("the session is over", func() bool { return len(w.sessions("past")) == 1 })
			if how := w.sessions("past")[0].How; how != "client-reset: the client gave up before it was connected" {
				t.Errorf("the session ended: %s", how)
			}
			w.clean()
		})
	}
}

// TestServerSilent has a server that exists but does not answer this client: the client
// waits as it would without SOS.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sossil", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.echo(80)
	w.clean()
	client := w.lab.Host("client").Addr().String()
	route := func(verb string) {
		t.Helper()
		if out, err := w.lab.Host("server").Command(t.Context(), "ip", "route", verb, "blackhole", client).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	route("add")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	dialled := make(chan error, 1)
	go func() {
		c, err := w.dial(ctx, w.serverAddr(80))
		if err == nil {
			_ = c.Close()
		}
		dialled <- err
	}()
	w.direct("timeout")
	select {
	case err := <-dialled:
		t.Errorf("the client sees %v, without SOS it would wait for an answer", err)
	default:
		cancel()
		<-dialled
	}
	route("del")
	w.echo(80)
	w.clean()
}

// TestControllerRestart stops the controller in mid-transfer: the transfer continues
// without it, the next controller takes the session over, and removes its rules at the end.
func TestControllerRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosctl", wan), options{})
	const part = 8 << 20
	next := w.inParts(80, 1, part, part, part)
	c := w.mustDial(80)
	id := w.live().ID
	before := [][]string{w.serviceRules("s1"), w.serviceRules("s2")}
	w.stop()
	if got := w.serviceRules("s1"); !slices.Equal(got, before[0]) {
		t.Errorf("rules without controller: %v, want %v", got, before[0])
	}
	next() // in part without a controller
	w.startController()
	w.settled()
	w.eventually("the session is found again", func() bool {
		all := w.sessions("all")
		return len(all) == 1 && all[0].ID == id
	})
	if after := [][]string{w.serviceRules("s1"), w.serviceRules("s2")}; !slices.EqualFunc(before, after, slices.Equal[[]string]) {
		t.Errorf("rules after the restart: %v, want %v", after, before)
	}
	next()
	w.wantContent(c, 1, 3*part)
	_ = c.Close()
	w.clean()
}

// TestSessionEndsWithoutController ends a session while no controller runs: the next one
// cleans up.
func TestSessionEndsWithoutController(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosctl2", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	c := w.mustDial(80)
	w.live()
	w.stop()
	_ = c.CloseWrite()
	if _, _, err := drain(c, testTimeout); err != nil {
		t.Error(err)
	}
	_ = c.Close()
	if len(w.serviceRules("s1")) == 0 {
		t.Error("rules went without a controller")
	}
	w.startController()
	w.settled()
	w.clean()
}

// TestSwitchReconnects interrupts the switches' connections to the controller in
// mid-transfer.
func TestSwitchReconnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosrec", wan), options{})
	const size = 20 << 20
	w.download(80, 1, size)
	c := w.mustDial(80)
	w.live()
	for _, s := range []string{"s1", "s2"} {
		if _, err := w.lab.Switch(s).Vsctl(t.Context(), "set-controller", "br0", "tcp:127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("the switches are gone", func() bool { return len(w.net.Topology().Switches) == 0 })
	for _, s := range []string{"s1", "s2"} {
		if _, err := w.lab.Switch(s).Vsctl(t.Context(), "set-controller", "br0", "tcp:"+w.lab.ControllerAddr().String()); err != nil {
			t.Fatal(err)
		}
	}
	w.wantContent(c, 1, size)
	_ = c.Close()
	w.settled()
	w.clean()
}

// TestLinkDown takes down the link that a transfer uses: the transfer continues over
// another.
func TestLinkDown(t *testing.T) {
	t.Parallel()
	one := delayline.Params{Rate: 50e6, Delay: 10 * time.Millisecond}
	two := delayline.Params{Rate: 50e6, Delay: 30 * time.Millisecond}
	w := newWorld(t, lab.TwoPathWAN("soslink", one, two), options{})
	const size = 20 << 20
	w.download(80, 1, size)
	c := w.mustDial(80)
	r := w.live()
	path, core := "path1", "m1"
	if len(w.serviceRules("m1")) == 0 {
		path, core = "path2", "m2"
	}
	w.t.Logf("agents' ways %v, over %s", r.AgentPaths, core)
	if err := w.lab.SetLink(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	w.wantContent(c, 1, size)
	if n := len(w.serviceRules(core)); n != 0 {
		t.Errorf("%d rules are left on the old way", n)
	}
	_ = c.Close()
	w.clean()
}

func TestEntryRemovedDuringTransfer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosent", wan), options{})
	const size = 20 << 20
	w.download(80, 1, size)
	c := w.mustDial(80)
	w.live()
	var list []sos.Entry
	w.get("whitelist", &list)
	if err := w.rest.Do(t.Context(), "DELETE", "/api/v1/sos/whitelist/"+list[0].ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	w.wantContent(c, 1, size)
	_ = c.Close()
	w.clean()
	punts := fmt.Sprintf("priority=%d,", network.StageSelect.Base()+rule.SelectConnection)
	for _, s := range w.switches() {
		w.eventually("no punt rule is left in "+s, func() bool { return !strings.Contains(w.flows(s), punts) })
	}
}

// TestOperatorEndsSession resets both ends.
func TestOperatorEndsSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosend", wan), options{})
	w.loseAgent(func() {
		for _, r := range w.sessions("live") {
			if err := w.rest.Do(t.Context(), "DELETE", "/api/v1/sos/sessions/"+r.ID, nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// echo sends a few bytes through a connection of its own and expects them back.
func (w *world) echo(port uint16) {
	w.t.Helper()
	c := w.mustDial(port)
	defer c.Close()
	if _, err := copyContent(c, 7, 10000); err != nil {
		w.t.Fatal(err)
	}
	_ = c.CloseWrite()
	w.wantContent(c, 7, 10000)
}
