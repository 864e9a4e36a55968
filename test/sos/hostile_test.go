package sos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// inHost runs a program on a host of the lab.
func (w *world) inHost(host, name string, args ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	if out, err := w.lab.Host(host).Command(ctx, name, args...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %v on %s: %v: %s", name, args, host, err, out)
	}
}

// TestAgentHostCutOff takes down every link of an agent's host at once, as a power failure
// does: nobody hears the agent, and no kernel answers for it.
func TestAgentHostCutOff(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("soshost", wan), options{})
			w.loseAgent(func() { w.cutOff(host) })
		})
	}
}

// cutOff takes down every link of a host.
func (w *world) cutOff(host string) {
	w.t.Helper()
	w.inHost(host, "ip", "link", "set", "ctl0", "down")
	if err := w.lab.SetLink(w.t.Context(), w.linkOf(host), false); err != nil {
		w.t.Error(err)
	}
}

// TestAgentDiesAfterPrepare kills an agent when both have prepared and the server is being
// dialled: the connection goes directly.
func TestAgentDiesAfterPrepare(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("sosaft", wan), options{})
			w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
			w.echo(80) // everybody's address is known
			w.clean()
			// The server receives the agent's packets, but its answers are lost.
			client := w.lab.Host("client").Addr().String()
			w.inHost("server", "ip", "route", "add", "blackhole", client+"/32")
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.echo(80)
			}()
			w.eventually("the server's side is ready", func() bool { return len(w.serviceRules("s2")) >= 2 })
			w.agents[host].kill()
			w.inHost("server", "ip", "route", "del", "blackhole", client+"/32")
			<-done
			w.direct("")
		})
	}
}

// TestSamePortAgain reuses a client's port as soon as the system releases it: the new
// connection is not taken for the old one.
func TestSamePortAgain(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{false, true} {
		name := "after the server closed"
		if reset {
			name = "after a reset"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("sosagain", wan), options{})
			w.serve(80, func(c *net.TCPConn) {
				if reset {
					_, _ = io.Copy(c, c)
					return
				}
				_, _ = io.CopyN(c, c, 10)
			})
			from := netip.AddrPortFrom(w.lab.Host("client").Addr(), 40000)
			for i := range 4 {
				c := w.dialFrom(from)
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				if _, err := c.Write([]byte("0123456789")); err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
				if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
				if reset {
					_ = c.SetLinger(0)
				} else if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Fatalf("connection %d: %v", i, err)
				}
				_ = c.Close()
			}
			w.clean()
		})
	}
}

// dialFrom connects from a port as soon as the client's system permits.
func (w *world) dialFrom(from netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	var c *net.TCPConn
	w.eventually("the port is free", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
		defer cancel()
		var err error
		c, err = w.dial(ctx, w.serverAddr(80), from)
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			w.t.Fatalf("connect again: %v", err)
		}
		return err == nil
	})
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestReplayedOpening records the openings of a session's connections and replays them, to
// the same session and to none, and tries a wrong key.
func TestReplayedOpening(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosrepl", wan), options{})
	openings := w.recordOpenings("y")
	port := netip.AddrPortFrom(w.lab.Host("y").Addr(), 7444)
	var raw []byte
	w.carry(5<<20, func(net.Conn) {
		select {
		case raw = <-openings:
		case <-time.After(testTimeout):
			t.Fatal("no opening was seen")
		}
		o, err := wire.ParseOpening(raw)
		if err != nil {
			t.Fatal(err)
		}
		key := agentapi.NewKey()
		o.Generation = 1 << 20
		for what, b := range map[string][]byte{"a replay": raw, "a wrong key": o.AppendTo(nil, key[:])} {
			w.refusedAt(port, what, b)
		}
	})
	w.refusedAt(port, "a replay after the session", raw)
}

// refusedAt sends bytes to a data port, which must not answer.
func (w *world) refusedAt(port netip.AddrPort, what string, b []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	c, err := w.dial(ctx, port)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(b); err != nil {
		w.t.Fatal(err)
	}
	if _, n, err := drain(c, testTimeout); timedOut(err) || n > 0 {
		w.t.Errorf("%s was answered with %d bytes, %v", what, n, err)
	}
}

// recordOpenings watches a host's network for segments that open a connection between
// agents.
func (w *world) recordOpenings(host string) <-chan []byte {
	w.t.Helper()
	out := make(chan []byte, 1)
	w.watchFrames(host, func(frame []byte) {
		i := bytes.Index(frame, []byte("SOS\x00\x01\x01"))
		if i < 0 || len(frame)-i < wire.OpeningSize {
			return
		}
		select {
		case out <- bytes.Clone(frame[i : i+wire.OpeningSize]):
		default:
		}
	})
	return out
}
