package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath/ebpf"
)

// inventory returns everything that a datapath could leave in a namespace.
func (d *device) inventory(t *testing.T) string {
	t.Helper()
	var lines []string
	d.must(t, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			lines = append(lines, fmt.Sprintf("link %s flags %v promisc %d allmulti %d mtu %d mac %v master %d", a.Name, a.RawFlags, a.Promisc, a.Allmulti, a.MTU, a.HardwareAddr, a.MasterIndex))
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				lines = append(lines, "qdisc "+a.Name+" "+q.Type())
			}
		}
		return nil
	})
	for _, name := range []string{wifi, lte} {
		for line := range strings.Lines(d.run(t, "ethtool", "-k", name)) {
			if strings.Contains(line, "receive-offload") {
				lines = append(lines, name+" "+strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRemoval checks that nothing is left, and that another program's interface is not taken over.
func TestRemoval(t *testing.T) {
	d := newDevice(t)
	d.run(t, "ethtool", "-K", wifi, "gro", "on")
	before := d.inventory(t)
	dp := d.opened(t, d.config())
	dp.use(lte, wifi, lte)
	if d.inventory(t) == before {
		t.Fatal("the inventory does not see what a datapath makes")
	}
	dp.close()
	dp.close() // closing twice is allowed
	if err := dp.call(func(ctx context.Context) error { return dp.inner.Use(ctx, wifi, []string{wifi}) }); err == nil {
		t.Error("a closed datapath can be used")
	}
	same := func(what string) {
		t.Helper()
		eventually(t, what+" nothing is left", func() bool { return d.inventory(t) == before })
	}
	same("after closing,")

	taken := d.config()
	taken.VNI = lte
	taken.Interfaces = taken.Interfaces[:1]
	missing := d.config()
	missing.Interfaces[1].Name = "eth9"
	for name, c := range map[string]datapath.Config{"an interface of that name": taken, "a missing interface": missing} {
		err := d.do(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			opened, err := ebpf.Open(ctx, c)
			if err == nil {
				return errors.Join(errors.New("it opened"), opened.Close())
			}
			t.Logf("%s: %v", name, err)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same("after failing to open,")
	}
}

// childVariable makes the test's own program run as a daemon.
const childVariable = "SLUICE_DATAPATH_CHILD"

// runChild opens a datapath in the namespace it was started in, reports it, and waits to be
// killed.
func runChild() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dp, err := ebpf.Open(ctx, (&device{}).config())
	if err == nil {
		err = dp.Use(ctx, wifi, []string{wifi})
	}
	fmt.Printf("ready: %v\n", err)
	select {}
}

// TestKilled kills a daemon: the device continues to work, and the next daemon takes over its VNI
// with the address on it.
func TestKilled(t *testing.T) {
	d := newDevice(t)
	d.run(t, "ethtool", "-K", wifi, "gro", "on")
	before := d.inventory(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(self)
	daemon.Env = append(os.Environ(), childVariable+"=1")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.start(t, daemon)
	b := make([]byte, 1000)
	n, err := out.Read(b)
	if got := string(b[:n]); err != nil || got != "ready: <nil>\n" {
		t.Fatalf("the daemon says %q, %v", got, err)
	}
	d.address(t, vni, ownNet, peer4, apMAC)
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait()

	outside := d.world.tap(t, "ap-"+wifi)
	check := func(when string, number byte) {
		t.Helper()
		inside := d.tap(t, vni)
		outside.drain()
		inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, number))
		if got, want := outside.next(t), udp4(wifiMAC, apMAC, own4, peer4, 9, number); !bytes.Equal(got, want) {
			t.Errorf("%s, left as\n%x, want\n%x", when, got, want)
		}
		outside.send(t, udp4(apMAC, wifiMAC, peer4, own4, 9, number))
		if got, want := inside.next(t), udp4(apMAC, vniMAC, peer4, own4, 9, number); !bytes.Equal(got, want) {
			t.Errorf("%s, arrived as\n%x, want\n%x", when, got, want)
		}
	}
	check("with the daemon killed", 1)

	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	check("with the next daemon", 2)
	d.must(t, func() error {
		link, err := netlink.LinkByName(vni)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err == nil && (len(addrs) != 1 || addrs[0].IP.String() != own4.String()) {
			err = fmt.Errorf("addresses of the VNI: %v", addrs)
		}
		return err
	})
	dp.close()
	eventually(t, "nothing is left", func() bool { return d.inventory(t) == before })
}
