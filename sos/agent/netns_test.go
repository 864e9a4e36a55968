package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// chain is four namespaces in a row: client, X, Y, server. Every link is a veth
// pair; nothing else is in them.
type chain struct {
	c, x, y, s string
}

var chains atomic.Int32

// Addresses in a chain; the agents' are on the link between them.
const (
	chainClient = "10.77.1.1"
	chainX      = "10.77.2.1"
	chainY      = "10.77.2.2"
	chainServer = "10.77.3.2"
)

// newChain builds a chain, or skips the test where that is not permitted.
func newChain(t testing.TB, mtu int) *chain {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	prefix := fmt.Sprintf("sosagent-%d-%d", os.Getpid(), chains.Add(1))
	n := &chain{c: prefix + "-c", x: prefix + "-x", y: prefix + "-y", s: prefix + "-s"}
	for _, ns := range []string{n.c, n.x, n.y, n.s} {
		ip(t, "netns add "+ns)
		t.Cleanup(func() { ip(t, "netns del "+ns) })
		ip(t, "-n "+ns+" link set lo up")
		// reno is what every kernel permits in a namespace; where bbr is the
		// machine's default it would pace the end hosts of a local test.
		ip(t, "netns exec "+ns+" sysctl -qw net.ipv4.tcp_congestion_control=reno")
	}
	link := func(a, an, aa, b, bn, ba string) {
		ip(t, fmt.Sprintf("link add name %s netns %s mtu %d type veth peer name %s netns %s mtu %d", an, a, mtu, bn, b, mtu))
		ip(t, fmt.Sprintf("-n %s addr add %s/24 dev %s", a, aa, an))
		ip(t, fmt.Sprintf("-n %s addr add %s/24 dev %s", b, ba, bn))
		ip(t, fmt.Sprintf("-n %s link set %s up", a, an))
		ip(t, fmt.Sprintf("-n %s link set %s up", b, bn))
	}
	link(n.c, "x", chainClient, n.x, "c", "10.77.1.2")
	link(n.x, "y", chainX, n.y, "x", chainY)
	link(n.y, "s", "10.77.3.1", n.s, "y", chainServer)
	ip(t, "-n "+n.c+" route add default via 10.77.1.2")
	ip(t, "-n "+n.s+" route add default via 10.77.3.1")
	ip(t, "-n "+n.x+" route add default via "+chainY)
	ip(t, "-n "+n.y+" route add default via "+chainX)
	return n
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
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
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

// dialIn connects inside a namespace.
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
	c, err := agentapi.NewClient("http://127.0.0.1:7443", nil, agentapi.WithDialer(dialIn(ns)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
