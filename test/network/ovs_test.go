package network_test

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
)

// run starts a network in a lab's control namespace and stops it with the test.
func run(t testing.TB, l *lab.Lab, c network.Config, prepare ...func(*network.Network)) (n *network.Network, stop func()) {
	t.Helper()
	ln, err := l.Control().Listen("tcp", l.ControllerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Listeners = []net.Listener{ln}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	if c.DiscoveryInterval == 0 {
		c.DiscoveryInterval, c.DiscoverySettle = 200*time.Millisecond, 300*time.Millisecond
		c.DiscoveryTimeout = cmp.Or(c.DiscoveryTimeout, 5*time.Second) // a switch may stand still
	}
	if n, err = network.New(c); err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return n, stop
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// ready waits until all links are known and n edge ports have settled.
func ready(t *testing.T, n *network.Network, switches, links, edges int) {
	t.Helper()
	networktest.Eventually(t, "switches, links and edge ports", func() bool {
		top, settled := n.Topology(), 0
		for _, s := range n.Switches() {
			for _, p := range s.Ports() {
				if n.IsEdge(network.PortRef{Switch: s.DPID(), Port: p.Number}) {
					settled++
				}
			}
		}
		return len(top.Switches) == switches && len(top.Links) == 2*links && settled == edges
	})
}

func ping(t *testing.T, l *lab.Lab, from, to string) {
	t.Helper()
	addr := l.Host(to).Addr().String()
	out, err := l.Host(from).Command(t.Context(), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", addr).CombinedOutput()
	if err != nil {
		t.Fatalf("ping %s from %s: %v\n%s", to, from, err, out)
	}
}

func TestHostsReachEachOtherOverOpenVSwitch(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netring", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h1", "h2")
	ping(t, l, "h2", "h3")
	ping(t, l, "h3", "h1")
	if got := len(n.Hosts()); got != 3 {
		t.Errorf("%d hosts are known, want 3: %v", got, n.Hosts())
	}
}

// Rules are listed with what they have counted, those of default forwarding too.
func TestRulesAreCounted(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netcount", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	counted := map[string]network.InstalledRule{}
	networktest.Eventually(t, "every owner's rules count", func() bool {
		s, ok := n.Switch(1)
		if !ok {
			t.Fatal("the switch has left")
		}
		rules, err := s.CountedRules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			if r.Packets > 0 && r.Bytes > 0 && time.Since(r.CountersAt) < 10*time.Second {
				counted[r.Owner] = r
			}
		}
		return len(counted) == 2
	})
	if counted["forwarding"].Name == "" || counted["network"].Name == "" {
		t.Errorf("rules that count: %+v", counted)
	}
}
