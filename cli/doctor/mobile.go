package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/openflow"
	handover "github.com/sluice-net/sluice/services/handover/cli"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath/ebpf"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

// ForMobile checks whether this machine has what the daemon of a mobile device needs: rights, a kernel,
// interfaces and files.
func ForMobile(ctx context.Context, c *handover.Mobile) []Finding {
	host := Host()
	out := []Finding{
		mobileAddresses(c),
		host.root(Fail, "the daemon changes interfaces and sends frames", "run it as root, or give it CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"),
		datapath(),
	}
	out = append(out, interfaces(c)...)
	out = append(out, host.managers()...)
	out = append(out, mobileFiles(c)...)
	if c.Orders.Server != "" {
		out = append(out, reachable(ctx, c.Orders.Server))
	}
	return about(Mobile, out)
}

// mobileAddresses returns a finding with the MAC addresses that the network has to know.
func mobileAddresses(c *handover.Mobile) Finding {
	f := Finding{Check: "addresses to register", Level: OK}
	macs := []string{c.VNI.MAC}
	if c.VNI.MAC == "" {
		mac, err := mobile.ChooseVNIMAC(c.StateDir, c.Names(), false)
		if err != nil {
			f.Level, f.Found, f.Advice = Fail, err.Error(), "plug the interface in, or set vni.mac"
			return f
		}
		macs[0] = mac.String()
	}
	links, err := device.Links(c.Names()...)
	if err != nil {
		f.Level, f.Found = Fail, err.Error()
		return f
	}
	for _, l := range links {
		if l.Present {
			macs = append(macs, l.MAC.String())
		}
	}
	f.Found = strings.Join(macs, " ")
	return f
}

// datapath checks whether the kernel supports the device's datapath.
func datapath() Finding {
	f := Finding{Check: "datapath", Level: OK, Found: "the kernel carries it"}
	if err := ebpf.Probe(); err != nil {
		f.Level, f.Found, f.Advice = Fail, err.Error(), "a kernel of 6.6 or later with eBPF, and the right to load programs"
	}
	return f
}

// interfaces checks the interfaces that the daemon will use.
func interfaces(c *handover.Mobile) []Finding {
	links, err := device.Links(c.Names()...)
	if err != nil {
		return []Finding{{Check: "interfaces", Level: Fail, Found: err.Error()}}
	}
	var out []Finding
	present := 0
	for _, l := range links {
		f := Finding{Check: "interface " + l.Name, Level: OK}
		switch {
		case !l.Present:
			f.Level, f.Found, f.Advice = Warn, "not there", "the daemon uses it as soon as it is plugged in; check the name if it should be there now"
		case l.Type != device.Ethernet || l.MAC == (openflow.MAC{}):
			f.Level, f.Found, f.Advice = Fail, "is not an Ethernet interface", "name one that is"
		case !l.Carrier:
			f.Level, f.Found = Info, "no link now"
			present++
		default:
			f.Found = "has a link"
			present++
		}
		if n := ownAddresses(l.Name); n > 0 && f.Level != Fail {
			f.Found += fmt.Sprintf(", and %d addresses of its own, which are taken off while the daemon runs", n)
		}
		out = append(out, f)
	}
	if present == 0 {
		out = append(out, Finding{Check: "interfaces", Level: Fail, Found: "none of them can be used", Advice: "sluice config example mobile: see interfaces"})
	}
	return out
}

func ownAddresses(name string) int {
	var addrs []net.Addr
	if i, err := net.InterfaceByName(name); err == nil {
		addrs, _ = i.Addrs() // addresses that cannot be read count as none
	}
	n := 0
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			n++
		}
	}
	return n
}

// managers checks for programs that also configure interfaces.
func (s *System) managers() []Finding {
	var out []Finding
	for _, m := range []struct{ path, name, advice string }{
		{"/run/NetworkManager", "NetworkManager", "nmcli device set INTERFACE managed no"},
		{"/run/systemd/netif/leases", "systemd-networkd", "a .network file for the interfaces with [Link] Unmanaged=yes"},
	} {
		if s.exists(m.path) {
			out = append(out, Finding{Check: m.name, Level: Warn, Found: "runs", Advice: "it must leave the interfaces alone: " + m.advice})
		}
	}
	return out
}

// mobileFiles checks the files that the daemon reads and writes.
func mobileFiles(c *handover.Mobile) []Finding {
	out := []Finding{folder("folder for state", c.StateDir)}
	if _, err := os.Stat(filepath.Join(c.StateDir, device.JournalFile)); err == nil {
		out = append(out, Finding{Check: "journal", Level: Info, Found: "a daemon runs, or was killed", Advice: "the next one puts back what it has changed, or: sluice mobile restore"})
	}
	if c.KeyFile != "" {
		out = append(out, keyFile(c.KeyFile))
	}
	if info, err := os.Lstat(c.Resolver); c.Resolver != "" && err == nil && !info.Mode().IsRegular() {
		out = append(out, Finding{Check: "resolver", Level: Warn, Found: c.Resolver + " belongs to another program", Advice: "the network's name servers are not used: tell that program, or name a file of its own"})
	}
	return out
}

func keyFile(path string) Finding {
	f := Finding{Check: "key_file", Level: OK, Found: path}
	if _, err := mobile.ReadKey(path); err != nil {
		f.Level, f.Found, f.Advice = Fail, err.Error(), "the key that the device was registered with; openssl rand -hex 32 makes one"
		return f
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&(fs.ModePerm&^0o700) != 0 {
		f.Level, f.Advice = Warn, fmt.Sprintf("users other than its owner can read it (%v): chmod 600 %s", info.Mode().Perm(), path)
	}
	return f
}

// reachable returns a finding that says whether a server accepts connections at the address of a URL.
func reachable(ctx context.Context, server string) Finding {
	f := Finding{Check: "orders.server", Level: OK, Found: server + " answers"}
	u, err := url.Parse(server)
	if err == nil {
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		var d net.Dialer
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port)); err == nil {
			err = conn.Close()
		}
	}
	if err != nil {
		f.Level, f.Found = Warn, err.Error()
		f.Advice = "the device follows its own policy while the controller cannot be reached"
	}
	return f
}
