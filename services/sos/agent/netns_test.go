package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// chain is four namespaces in a row: client, X, Y, server. Every link is a veth pair, and there is
// nothing else in them. The agents' addresses are those of the link between them.
type chain struct {
	c, x, y, s                     string
	client, agentX, agentY, server netip.Addr
	clientOfX, serverOfY           netip.Addr // the agents' addresses towards their end hosts
	family                         string
}

var chains atomic.Int32

// newChain builds a chain, or skips the test if that is not permitted.
func newChain(t testing.TB, mtu int, v6 bool) *chain {
	t.Helper()
	live.Test(t)
	prefix := fmt.Sprintf("sosagent-%d-%d", os.Getpid(), chains.Add(1))
	n := &chain{c: prefix + "-c", x: prefix + "-x", y: prefix + "-y", s: prefix + "-s", family: "-4"}
	form, bits := "10.77.%d.%d", 24
	if v6 {
		form, bits, n.family = "fd77::%d:%d", 112, "-6"
	}
	at := func(net, host int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(form, net, host)) }
	n.client, n.clientOfX, n.agentX, n.agentY, n.serverOfY, n.server = at(1, 1), at(1, 2), at(2, 1), at(2, 2), at(3, 1), at(3, 2)
	for _, ns := range []string{n.c, n.x, n.y, n.s} {
		ip(t, "netns add "+ns)
		t.Cleanup(func() { ip(t, "netns del "+ns) })
		ip(t, "-n "+ns+" link set lo up")
		// Every kernel permits reno in a namespace. If bbr is the machine's default it would pace
		// the end hosts of a local test.
		ip(t, "netns exec "+ns+" sysctl -qw net.ipv4.tcp_congestion_control=reno")
	}
	link := func(a, an string, aa netip.Addr, b, bn string, ba netip.Addr) {
		ip(t, fmt.Sprintf("link add name %s netns %s mtu %d type veth peer name %s netns %s mtu %d", an, a, mtu, bn, b, mtu))
		for _, end := range []struct {
			ns, dev string
			addr    netip.Addr
		}{{a, an, aa}, {b, bn, ba}} {
			args := fmt.Sprintf("-n %s addr add %s/%d dev %s", end.ns, end.addr, bits, end.dev)
			if v6 {
				args += " nodad"
			}
			ip(t, args)
			ip(t, fmt.Sprintf("-n %s link set %s up", end.ns, end.dev))
		}
		carries(t, a, an)
		carries(t, b, bn)
	}
	link(n.c, "x", n.client, n.x, "c", n.clientOfX)
	link(n.x, "y", n.agentX, n.y, "x", n.agentY)
	link(n.y, "s", n.serverOfY, n.s, "y", n.server)
	for _, r := range []struct {
		ns  string
		via netip.Addr
	}{{n.c, n.clientOfX}, {n.s, n.serverOfY}, {n.x, n.agentY}, {n.y, n.agentX}} {
		ip(t, fmt.Sprintf("%s -n %s route add default via %s", n.family, r.ns, r.via))
	}
	return n
}

// carries waits until an interface has found its other end. Packets before that are lost: on a busy
// machine these are several seconds of SYNs, too many for an agent that dials a server.
func carries(t testing.TB, ns, dev string) {
	t.Helper()
	eventually(t, dev+" of "+ns+" carries", func() bool {
		var state netlink.LinkOperState
		err := inNamespace(ns, func() error {
			link, err := netlink.LinkByName(dev)
			if err == nil {
				state = link.Attrs().OperState
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return state == netlink.OperUp
	})
}

func ip(t testing.TB, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// inNamespace runs f on a thread that is in the namespace.
func inNamespace(ns string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it is never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(ns)
		if err == nil {
			defer h.Close()
			err = netns.Set(h)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// dialIn returns a function that connects inside a namespace.
func dialIn(ns string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = inNamespace(ns, func() error {
			d := net.Dialer{Timeout: 5 * time.Second}
			c, err = d.DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
}

// clientOf returns a control client of the agent in a namespace.
func clientOf(t testing.TB, ns string) *agentapi.Client {
	t.Helper()
	c, err := agentapi.NewClient("http://127.0.0.1:8440", nil, dialIn(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
