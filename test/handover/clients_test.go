package handover

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

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// leaseWait is longer than two of the shortest leases: clients renew after about half of one and
// rebind after about seven eighths; dhclient at random times.
const leaseWait = 130 * time.Second

// dhcpProgram is a DHCP client of the distribution.
type dhcpProgram struct {
	name   string
	reboot bool // whether it has the state INIT-REBOOT
	// command returns the command that runs it in the foreground on eth0.
	command func(dir string, bits int) []string
	// release makes the running client release its address, or a second run of the client does so.
	releaseSignal syscall.Signal
	releaseFlag   string
}

func dhcpPrograms() []dhcpProgram {
	return []dhcpProgram{
		{
			name: "dhclient", reboot: true, releaseFlag: "-r",
			command: func(dir string, bits int) []string {
				// With its default pauses it may miss the eight seconds that a lease of a minute
				// leaves to rebind.
				_ = os.WriteFile(filepath.Join(dir, "conf"), []byte("initial-interval 2;\nbackoff-cutoff 4;\n"), 0o644)
				script(dir, fmt.Sprintf(`case "$reason" in
PREINIT) ip link set "$interface" up ;;
BOUND|RENEW|REBIND|REBOOT)
  ip addr replace "$new_ip_address/%d" dev "$interface"
  ip route replace default via "${new_routers%%%% *}" dev "$interface" ;;
EXPIRE|FAIL|RELEASE|STOP) ip addr flush dev "$interface" ;;
esac
exit 0
`, bits))
				return []string{"dhclient", "-4", "-d", "-cf", dir + "/conf", "-sf", dir + "/script", "-lf", dir + "/leases", "-pf", dir + "/pid", "eth0"}
			},
		},
		{
			name: "udhcpc", releaseSignal: syscall.SIGUSR2,
			command: func(dir string, bits int) []string {
				script(dir, fmt.Sprintf(`case "$1" in
deconfig) ip addr flush dev "$interface" ;;
bound|renew)
  ip addr replace "$ip/%d" dev "$interface"
  ip route replace default via "${router%%%% *}" dev "$interface" ;;
esac
exit 0
`, bits))
				return []string{"udhcpc", "-f", "-i", "eth0", "-s", dir + "/script", "-p", dir + "/pid"}
			},
		},
		{
			name: "dhcpcd", reboot: true, releaseSignal: syscall.SIGALRM,
			command: func(dir string, _ int) []string {
				// Its files have fixed paths, so it gets these paths for itself.
				for _, sub := range []string{"lib", "run"} {
					_ = os.Mkdir(filepath.Join(dir, sub), 0o755)
				}
				conf := filepath.Join(dir, "conf")
				_ = os.WriteFile(conf, []byte("duid\nnoipv4ll\nnodev\noption routers\nrequire dhcp_server_identifier\nscript /bin/true\n"), 0o644)
				return []string{
					"unshare", "--mount", "sh", "-c",
					`mount --bind "$0/lib" /var/lib/dhcpcd && mount --bind "$0/run" /run && mkdir -p /run/dhcpcd && exec dhcpcd -4 -B -f "$0/conf" eth0`, dir,
				}
			},
		},
	}
}

func script(dir, text string) {
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		panic(err) // a test's own directory
	}
}

// dhcpClient is a client that runs on a device.
type dhcpClient struct {
	dhcpProgram
	w     *world
	host  string
	dir   string
	cmd   *exec.Cmd
	log   *logBuffer
	done  chan error
	heard *capture
	ip    netip.Addr
}

func (w *world) client(p dhcpProgram, host string) *dhcpClient {
	w.t.Helper()
	if _, err := exec.LookPath(p.name); err != nil {
		w.t.Skipf("%s is not installed: scripts/deps.sh test installs it", p.name)
	}
	c := &dhcpClient{dhcpProgram: p, w: w, host: host, dir: w.t.TempDir(), log: &logBuffer{}}
	_ = os.Chmod(c.dir, 0o755)
	w.t.Cleanup(func() {
		c.kill()
		if w.t.Failed() {
			w.t.Logf("%s on %s:\n%s", p.name, host, c.log)
		}
	})
	return c
}

func (c *dhcpClient) start() {
	c.w.t.Helper()
	args := c.command(c.dir, c.w.domain.Prefix.Bits())
	c.cmd = c.w.lab.Host(c.host).Command(context.Background(), args[0], args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.WaitDelay = time.Second // its own children may have inherited the log
	if err := c.cmd.Start(); err != nil {
		c.w.t.Fatal(err)
	}
	c.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(c.cmd, c.done)
}

// kill kills the client: it sends nothing to the server.
func (c *dhcpClient) kill() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		<-c.done
		c.cmd = nil
	}
}

func (c *dhcpClient) release() {
	c.w.t.Helper()
	if c.releaseSignal != 0 {
		if err := c.cmd.Process.Signal(c.releaseSignal); err != nil {
			c.w.t.Fatal(err)
		}
		return
	}
	args := c.command(c.dir, c.w.domain.Prefix.Bits())
	c.w.run(c.host, append([]string{args[0], c.releaseFlag}, args[1:]...)...)
}

// address returns the IPv4 address of a device's eth0.
func (w *world) address(host string) netip.Addr {
	for _, word := range strings.Fields(w.run(host, "ip", "-4", "-o", "addr", "show", "dev", "eth0")) {
		if p, err := netip.ParsePrefix(word); err == nil {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// reaches reports whether the server answers a host's ping.
func (w *world) reaches(host string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return w.lab.Host(host).Command(ctx, "ping", "-c", "3", "-i", "0.2", "-W", "1", w.domain.ServerAddr.String()).Run() == nil
}

// TestRealClients runs the DHCP clients of Linux systems through all states: INIT, SELECTING,
// RENEWING, REBINDING, INIT-REBOOT, and release. It reads their messages from their interface.
// There are two of each; one is prevented from reaching the server by unicast, so that it rebinds.
func TestRealClients(t *testing.T) {
	live.Test(t)
	t.Parallel()
	programs := dhcpPrograms()
	w := newWorld(t, lab.MobilityOptions{Levels: 2, Devices: 2 * len(programs), Interfaces: 1})
	spec := w.poolSpec()
	spec.LeaseTime = "1m"
	w.put("pools/"+pool, spec)
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	var clients []*dhcpClient
	for i := range 2 * len(programs) {
		host := fmt.Sprintf("dev%d", i+1)
		w.put("devices/"+host, handover.DeviceSpec{MACs: []string{hostMAC(w.lab.Host(host), 0).String()}, Class: "open", Pool: pool})
		c := w.client(programs[i/2], host)
		c.heard = w.capture(host, 0)
		c.start()
		clients = append(clients, c)
	}
	for i, c := range clients {
		c.discovers()
		if i%2 == 1 {
			w.run(c.host, "nft", "table ip test { chain out { type filter hook output priority 0; ip daddr "+spec.Server+" udp dport 67 drop; }; }")
		}
	}
	for i, c := range clients {
		if i%2 == 0 {
			c.confirmed(0, "REQUEST in RENEWING", renewing)
			c.reboots()
			c.releases()
		}
	}
	for i, c := range clients {
		if i%2 == 1 {
			c.confirmed(0, "REQUEST in REBINDING", rebinding)
			if !w.reaches(c.host) {
				t.Errorf("%s does not reach the server after it has rebound", c.name)
			}
		}
	}
}

// discovers checks how a client gets its first address.
func (c *dhcpClient) discovers() {
	c.w.t.Helper()
	offer := c.heard.answered(0, "DISCOVER", discovering)
	ack := c.heard.answered(0, "REQUEST in SELECTING", selecting)
	if offer.kind != dhcpv4.MessageTypeOffer || ack.kind != dhcpv4.MessageTypeAck || !ack.m.YourIPAddr.Equal(offer.m.YourIPAddr) {
		c.w.t.Fatalf("answered by\n%v\n%v", offer, ack)
	}
	c.ip, _ = netip.AddrFromSlice(ack.m.YourIPAddr.To4())
	c.configured()
	if !c.w.reaches(c.host) {
		c.w.t.Errorf("%s has %v and does not reach the server", c.name, c.ip)
	}
}

// configured waits until the host has the granted address and, which the client sets after it, a
// route to the server.
func (c *dhcpClient) configured() {
	c.w.t.Helper()
	c.w.eventually(c.name+" has set its address and route", func() bool {
		return c.w.address(c.host) == c.ip && strings.Contains(c.w.run(c.host, "ip", "-4", "route"), "default ")
	})
}

// confirmed checks that a client, in a message after the n-th, has asked to keep its address and
// that this was granted.
func (c *dhcpClient) confirmed(n int, what string, asked func(said) bool) {
	c.w.t.Helper()
	ack := c.heard.answered(n, what, asked)
	if ip, _ := netip.AddrFromSlice(ack.m.YourIPAddr.To4()); ack.kind != dhcpv4.MessageTypeAck || ip != c.ip {
		c.w.t.Errorf("%s with %v, %s, was answered by %v", c.name, c.ip, what, ack)
	}
}

// reboots kills a client and starts it again.
func (c *dhcpClient) reboots() {
	c.w.t.Helper()
	if c.reboot {
		n := c.heard.len()
		c.kill()
		c.start()
		c.confirmed(n, "REQUEST in INIT-REBOOT", rebooting)
		c.configured()
	}
	if !c.w.reaches(c.host) {
		c.w.t.Errorf("%s does not reach the server any more", c.name)
	}
}

// releases makes a client release its address.
func (c *dhcpClient) releases() {
	c.w.t.Helper()
	c.release()
	c.w.eventually(c.name+"'s lease is released", func() bool { l, ok := c.w.lease(c.host); return !ok || l.released() })
	c.w.eventually("the device's rules are gone", func() bool { return len(c.w.rulesOf(c.ip)) == 0 })
}

// TestClientsThatIgnoreTheirLink moves the cables of clients that do not watch their link and so
// do not ask again. The network follows their packets.
func TestClientsThatIgnoreTheirLink(t *testing.T) {
	live.Test(t)
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Levels: 2, Devices: 2, Interfaces: 1})
	w.put("pools/"+pool, w.poolSpec())
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	for i, p := range dhcpPrograms()[:2] { // dhclient and udhcpc
		host := fmt.Sprintf("dev%d", i+1)
		w.put("devices/"+host, handover.DeviceSpec{MACs: []string{hostMAC(w.lab.Host(host), 0).String()}, Class: "open", Pool: pool})
		c := w.client(p, host)
		c.heard = w.capture(host, 0)
		c.start()
		c.discovers()
		link := host + "-eth0"
		for _, edge := range []string{w.domain.Edges[1-i], w.domain.Edges[i]} {
			if err := w.lab.MoveLink(t.Context(), link, edge); err != nil {
				t.Fatal(err)
			}
			w.eventually(fmt.Sprintf("%s reaches the server from %s", p.name, edge), func() bool { return w.reaches(host) })
			if !w.servedBy(host, w.port(link)) {
				t.Errorf("%s is at %v and not served there", p.name, w.port(link))
			}
			r := w.handovers(host, 1)
			if len(r) != 1 || !strings.Contains(r[0].Cause, "packet") {
				t.Errorf("%s: it was not a packet that moved it: %+v", p.name, r)
			}
		}
	}
	w.leaked()
}
