package network_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// serviceAddrs are the addresses that two servers share, in the lab's network.
func serviceAddrs(l *lab.Lab, count int) (all []netip.Addr) {
	base := l.Host("h1").Addr().As4()
	for i := range count {
		base[3] = byte(200 + i)
		all = append(all, netip.AddrFrom4(base))
	}
	return all
}

// reachAll waits until a host reaches every address, and checks that each is known to be at the
// expected host.
func reachAll(t *testing.T, l *lab.Lab, n *network.Network, from, at string, all []netip.Addr) {
	t.Helper()
	mac := openflow.MAC(l.Host(at).MACOf(0))
	for _, addr := range all {
		networktest.Eventually(t, fmt.Sprintf("%v to be at %s and reachable from %s", addr, at, from), func() bool {
			h, known := n.HostByIP(addr)
			return known && h.MAC == mac && l.Host(from).Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", addr.String()).Run() == nil
		})
	}
}

// TestAllAddressesMoveAtOnce moves eight addresses from one server to another, which says so once for
// each, and checks that all of them are reached there.
func TestAllAddressesMoveAtOnce(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netgarp", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h1", "h2")
	ping(t, l, "h1", "h3")
	all := serviceAddrs(l, 8)
	for _, addr := range all {
		sh(t, l, "h2", "ip", "addr", "add", addr.String()+"/32", "dev", "eth0")
	}
	gratuitous := func(host string) {
		raw := openRaw(t, l, host, "eth0")
		mac := openflow.MAC(l.Host(host).MACOf(0))
		for _, addr := range all {
			raw.send(t, packet.AppendARPRequest(nil, mac, addr, addr, 0))
		}
	}
	gratuitous("h2")
	reachAll(t, l, n, "h1", "h2", all)
	for _, addr := range all {
		sh(t, l, "h2", "ip", "addr", "del", addr.String()+"/32", "dev", "eth0")
		sh(t, l, "h3", "ip", "addr", "add", addr.String()+"/32", "dev", "eth0")
	}
	gratuitous("h3")
	reachAll(t, l, n, "h1", "h3", all)
}

// TestKeepalivedMovesItsAddresses runs keepalived with eight addresses on two servers. When the master
// ends, the backup has all of them, and when it is back, it has them again.
func TestKeepalivedMovesItsAddresses(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("keepalived is not installed: scripts/deps.sh test installs it")
	}
	l := lab.New(t, lab.Ring("netvrrp", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h1", "h2")
	ping(t, l, "h1", "h3")
	all := serviceAddrs(l, 8)
	start := func(host string, priority int) (stop func()) {
		dir := t.TempDir()
		var conf strings.Builder
		fmt.Fprintf(&conf, "vrrp_instance v {\n interface eth0\n state BACKUP\n virtual_router_id 7\n priority %d\n advert_int 1\n garp_master_delay 2\n virtual_ipaddress {\n", priority)
		for _, addr := range all {
			fmt.Fprintf(&conf, "  %v/32 dev eth0\n", addr)
		}
		conf.WriteString(" }\n}\n")
		file := filepath.Join(dir, "keepalived.conf")
		if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		// It ends with the test, which ends it gently first so that it gives its addresses away.
		cmd := l.Host(host).Command(context.WithoutCancel(t.Context()), program, "--dont-fork", "--log-console", "--vrrp",
			"-f", file, "-p", filepath.Join(dir, "pid"), "-r", filepath.Join(dir, "vrrp.pid"))
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stopped := false
		stop = func() {
			if stopped {
				return
			}
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(networktest.Timeout, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			if err := cmd.Wait(); err != nil {
				t.Logf("keepalived on %s: %v\n%s", host, err, out)
			}
		}
		t.Cleanup(stop)
		return stop
	}
	end := start("h2", 200)
	reachAll(t, l, n, "h1", "h2", all)
	start("h3", 100)
	end()
	reachAll(t, l, n, "h1", "h3", all)
	start("h2", 200)
	reachAll(t, l, n, "h1", "h2", all)
}
