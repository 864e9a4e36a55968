package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// BenchmarkRelay measures the relay itself: client, agent X, agent Y and server in four namespaces
// joined by veth pairs, without a switch. It reports the goodput and the processor time that each
// relay needs for a gigabyte, for the agents at p = 4 and for a pair of haproxy in the same run.
// The experiment sos-peers compares them over a long link.
func BenchmarkRelay(b *testing.B) {
	seconds := orDefault(os.Getenv("SOS_BENCH_SECONDS"), "4")
	for _, relay := range []string{"direct", "sos", "haproxy"} {
		b.Run(relay, func(b *testing.B) {
			for range b.N {
				runRelay(b, newChain(b, 1500, false), relay, seconds)
			}
		})
	}
}

func runRelay(b *testing.B, n *chain, relay, seconds string) {
	server := netip.AddrPortFrom(n.server, 5001)
	sink := startChild(b, n.s, "sink", "SOS_TEST_ADDR="+server.String())
	from, to := netip.AddrPortFrom(n.client, 40001), server
	var relays []*child
	switch relay {
	case "sos":
		relays, to = relayBySOS(b, n, from, server)
	case "haproxy":
		relays, to = relayByHaproxy(b, n)
	case "direct":
		forward(b, n.x)
		forward(b, n.y)
	}
	source := startChild(b, n.c, "source", "SOS_TEST_FROM="+from.String(), "SOS_TEST_ADDR="+to.String(), "SOS_TEST_SECONDS="+seconds)
	var bytes, later int64
	var took, tookLater float64
	if _, err := fmt.Sscan(sink.line(), &bytes, &took, &later, &tookLater); err != nil {
		b.Fatalf("sink: %v", err)
	}
	b.ReportMetric(8*float64(bytes)/took/1e9, "Gbit/s")
	if took > 2*settle.Seconds() {
		b.ReportMetric(8*float64(later)/tookLater/1e9, "Gbit/s-settled")
	}
	cpu := func(c *child, sig syscall.Signal) float64 { return c.stop(sig).Seconds() / (float64(bytes) / 1e9) }
	for i, c := range relays {
		b.ReportMetric(cpu(c, syscall.SIGTERM), []string{"cpu-s/GB-X", "cpu-s/GB-Y"}[i])
	}
	b.ReportMetric(cpu(source, syscall.SIGTERM), "cpu-s/GB-client")
	b.ReportMetric(cpu(sink, syscall.SIGTERM), "cpu-s/GB-server")
	b.ReportMetric(0, "ns/op")
}

// forward makes a namespace a router.
func forward(t testing.TB, ns string) {
	t.Helper()
	if out, err := exec.Command("ip", "netns", "exec", ns, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward").CombinedOutput(); err != nil {
		t.Fatalf("forwarding: %v: %s", err, out)
	}
}

// chainAgent starts an agent process in a namespace of a chain.
func chainAgent(t testing.TB, ns string, addr netip.Addr, change func(*Config)) *child {
	t.Helper()
	cfg := DefaultConfig()
	cfg.DataAddr = addr
	if change != nil {
		change(&cfg)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return startChild(t, ns, "agent", "SOS_TEST_CONFIG="+string(text))
}

// announce sets up a session between the agents of a chain and returns the address to which its
// client connects.
func announce(t testing.TB, n *chain, client, server netip.AddrPort, params agentapi.Params) (agentapi.SessionID, netip.AddrPort) {
	t.Helper()
	ctx := context.Background()
	toX, toY := clientOf(t, n.x), clientOf(t, n.y)
	req := agentapi.PrepareRequest{
		ID: agentapi.NewSessionID(), Key: agentapi.NewKey(), Client: client, Server: server, Params: params,
		Role: agentapi.RoleServer, Peer: agentapi.Peer{Addr: n.agentX, DataPorts: []uint16{7444}},
	}
	if _, err := toY.Prepare(ctx, req); err != nil {
		t.Fatal(err)
	}
	req.Role, req.Peer = agentapi.RoleClient, agentapi.Peer{Addr: n.agentY, DataPorts: []uint16{7444}}
	at, err := toX.Prepare(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*agentapi.Client{toY, toX} {
		if err := c.Commit(ctx, req.ID); err != nil {
			t.Fatal(err)
		}
	}
	return req.ID, netip.AddrPortFrom(at.Addr, at.Port)
}

func relayBySOS(b *testing.B, n *chain, client, server netip.AddrPort) ([]*child, netip.AddrPort) {
	relays := []*child{chainAgent(b, n.x, n.agentX, nil), chainAgent(b, n.y, n.agentY, nil)}
	_, at := announce(b, n, client, server, agentapi.Params{Connections: 4})
	return relays, at
}

func relayByHaproxy(b *testing.B, n *chain) ([]*child, netip.AddrPort) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		b.Skip("no haproxy")
	}
	start := func(ns string, bind, server netip.AddrPort) *child {
		file := filepath.Join(b.TempDir(), "haproxy.cfg")
		text := strings.Join([]string{
			"global", "  nbthread 1", "  tune.pipesize 1048576",
			"defaults", "  mode tcp", "  timeout connect 5s", "  timeout client 1m", "  timeout server 1m", "  option splice-auto",
			"listen relay", "  bind " + bind.String(), "  server next " + server.String(), "",
		}, "\n")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		c := startCommand(b, ns, nil, "haproxy", "-db", "-q", "-f", file)
		waitListening(b, ns, bind)
		return c
	}
	x, y := netip.AddrPortFrom(n.agentX, 7001), netip.AddrPortFrom(n.agentY, 7001)
	return []*child{start(n.x, x, y), start(n.y, y, netip.AddrPortFrom(n.server, 5001))}, x
}

// waitListening waits until a port of a namespace is open, without connecting to it.
func waitListening(t testing.TB, ns string, at netip.AddrPort) {
	t.Helper()
	eventually(t, at.String()+" listens", func() bool {
		out, err := exec.Command("ip", "netns", "exec", ns, "ss", "-Hltn", fmt.Sprintf("sport = :%d", at.Port())).Output()
		return err == nil && len(out) > 0
	})
}
