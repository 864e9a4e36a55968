package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// rig is a chain with two agent processes and one session through them.
type rig struct {
	*chain
	id             agentapi.SessionID
	x, y           *child
	client, server *net.TCPConn
}

func newRig(t *testing.T, v6 bool, mtu int, params agentapi.Params) *rig {
	t.Helper()
	return newRigOf(t, v6, mtu, params, nil)
}

// newRigOf does what newRig does, with a change of both agents' configuration.
func newRigOf(t *testing.T, v6 bool, mtu int, params agentapi.Params, change func(*Config)) *rig {
	t.Helper()
	r := rigOn(t, newChain(t, mtu, v6), change)
	r.connect(t, params)
	return r
}

// rigOn runs agents on a chain.
func rigOn(t *testing.T, n *chain, change func(*Config)) *rig {
	t.Helper()
	r := &rig{chain: n}
	r.x, r.y = chainAgent(t, r.chain.x, r.agentX, change), chainAgent(t, r.chain.y, r.agentY, change)
	return r
}

// connect sets up a session that the agents carry. It becomes the rig's session.
func (r *rig) connect(t *testing.T, params agentapi.Params) {
	t.Helper()
	var from *reservation
	var ln net.Listener
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(inNamespace(r.c, func() (err error) { from, err = reserve(netip.AddrPortFrom(r.chain.client, 0), ""); return err }))
	check(inNamespace(r.s, func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(r.chain.server, 0).String())
		return err
	}))
	defer ln.Close()
	var at netip.AddrPort
	r.id, at = announce(t, r.chain, netip.AddrPortFrom(r.chain.client, from.port), ln.Addr().(*net.TCPAddr).AddrPort(), params)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var err error
	r.client, err = from.dial(ctx, at)
	check(err)
	c, err := ln.Accept()
	check(err)
	r.server = c.(*net.TCPConn)
	t.Cleanup(func() { _ = r.client.Close(); _ = r.server.Close() })
}

// flow returns a flow, so that helpers for flows can be used with a rig.
func (r *rig) flow() *flow { return &flow{client: r.client, server: r.server, id: r.id} }

// underWay starts a transfer that does not end by itself and waits until bytes arrive. The channel
// receives the client's error, because only one user of a socket is told of a reset.
func (r *rig) underWay(t *testing.T) <-chan error {
	t.Helper()
	client := make(chan error, 1)
	go func() {
		_, err := sendAll(r.client, 1<<40, 1)
		client <- err
	}()
	if _, err := io.CopyN(io.Discard, r.server, 8<<20); err != nil {
		t.Fatal(err)
	}
	return client
}

// bothReset checks that both ends are reset. It takes the client's error from the channel, or by
// reading if the channel is nil.
func (r *rig) bothReset(t *testing.T, client <-chan error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client == nil {
			isReset(t, "client", r.client)
			return
		}
		_ = r.client.SetWriteDeadline(time.Now().Add(testTimeout))
		if err := <-client; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("client: %v, want a reset", err)
		}
	}()
	isReset(t, "server", r.server)
	<-done
}

// isReset checks that c is reset. It waits for less than the time after which an agent without any
// other sign gives its peer up.
func isReset(t *testing.T, name string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%s: %v, want a reset", name, err)
	}
}

// TestChain carries sessions over IPv4 and IPv6 and with large frames, by agents that are processes
// of their own.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v6  bool
		mtu int
	}{{false, 1500}, {true, 1500}, {false, 9000}} {
		t.Run(fmt.Sprintf("v6=%v,mtu=%d", c.v6, c.mtu), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.v6, c.mtu, agentapi.Params{Connections: 4})
			exchange(t, r.flow(), 20<<20, 20<<20)
			toX := clientOf(t, r.chain.x)
			eventually(t, "the session has ended", func() bool {
				list, err := toX.Sessions(context.Background())
				return err == nil && len(list) == 0
			})
		})
	}
}

// TestAgentKilled checks that both ends are reset when an agent is killed.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"X", "Y"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false, 1500, agentapi.Params{Connections: 4})
			client := r.underWay(t)
			victim := r.x
			if who == "Y" {
				victim = r.y
			}
			victim.stop(syscall.SIGKILL)
			r.bothReset(t, client)
		})
	}
}

// TestPeerCutOff checks that both ends are reset when the path between the agents is cut for longer
// than the peer's timeout, even if no data is in flight.
func TestPeerCutOff(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{true, false} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			t.Parallel()
			r := newRigOf(t, false, 1500, agentapi.Params{Connections: 4}, func(c *Config) { c.PeerTimeout = 2250 * time.Millisecond })
			var client <-chan error
			if busy {
				client = r.underWay(t)
			}
			ip(t, "-n "+r.chain.x+" link set y down")
			r.bothReset(t, client)
		})
	}
}

// TestAgentStopped checks that an agent that is stopped resets its sessions, and that the other
// agent does so at once.
func TestAgentStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, false, 1500, agentapi.Params{Connections: 4})
	client := r.underWay(t)
	r.y.stop(syscall.SIGTERM)
	r.bothReset(t, client)
}

// TestBreak checks that sessions survive an interruption of the path between the agents: a short
// one, in which no connection is given up, and one as long as TCP itself survives.
func TestBreak(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{700 * time.Millisecond, 5 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false, 1500, agentapi.Params{Connections: 4})
			r.underWay(t)
			ip(t, "-n "+r.chain.x+" link set y down")
			pause.For(d, "the link is down for so long")
			ip(t, "-n "+r.chain.x+" link set y up")
			ip(t, "-n "+r.chain.x+" route add default via "+r.agentY.String())
			_ = r.server.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := io.CopyN(io.Discard, r.server, 20<<20); err != nil {
				t.Errorf("after the break: %v", err)
			}
		})
	}
}
