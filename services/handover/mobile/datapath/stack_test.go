package datapath_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/openflow"
)

// stack gives an interface addresses and lets its kernel find neighbours itself.
func (s *space) stack(t *testing.T, name string, addrs ...string) {
	t.Helper()
	s.must(t, func() error {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0"), 0)
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addrs {
			addr, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("%s on %s: %w", text, name, err)
			}
		}
		return nil
	})
	// Until duplicate address detection is done an IPv6 address cannot be used.
	eventually(t, "the addresses of "+name+" are free", func() (free bool) {
		s.must(t, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			list, err := netlink.AddrList(link, netlink.FAMILY_V6)
			free = true
			for _, a := range list {
				free = free && a.Flags&unix.IFA_F_TENTATIVE == 0
			}
			return err
		})
		return free
	})
}

// echo connects from one namespace to another and checks that a line is sent back.
func echo(t *testing.T, from, to *space, at netip.Addr) {
	t.Helper()
	var l net.Listener
	to.must(t, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 100)
		n, _ := c.Read(b)
		_, _ = c.Write(b[:n])
	}()
	defer func() { _ = l.Close(); <-done }()
	from.must(t, func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 100)
		_, err = c.Write([]byte("are you there\n"))
		n, readErr := c.Read(b)
		if err := errors.Join(err, c.SetDeadline(time.Now().Add(time.Minute)), readErr); err != nil {
			return err
		}
		if got := string(b[:n]); got != "are you there\n" {
			return fmt.Errorf("sent back was %q", got)
		}
		return nil
	})
}

// neighbour returns the address that a namespace's kernel has found for another.
func (s *space) neighbour(t *testing.T, name string, of netip.Addr) (mac string) {
	t.Helper()
	s.must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		list, err := netlink.NeighList(link.Attrs().Index, 0)
		for _, n := range list {
			if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == of {
				mac = n.HardwareAddr.String()
			}
		}
		return err
	})
	return mac
}

// TestStacks lets two kernels communicate, with their own ARP and neighbour discovery, first by
// one interface and then by the other.
func TestStacks(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	d.run(t, "ethtool", "-K", vni, "tx", "off")
	at := map[string]openflow.MAC{wifi: wifiMAC, lte: lteMAC}
	for i, name := range []string{wifi, lte} {
		d.world.run(t, "ethtool", "-K", "ap-"+name, "tx", "off")
		there4 := netip.AddrFrom4([4]byte{10, 9, byte(i), 1})
		there6 := netip.MustParseAddr("fd09:0:0:" + strconv.Itoa(i) + "::1")
		own4 := netip.AddrFrom4([4]byte{10, 9, byte(i), 9})
		own6 := netip.MustParseAddr("fd09:0:0:" + strconv.Itoa(i) + "::9")
		dp.use(name, name)
		d.world.stack(t, "ap-"+name, there4.String()+"/24", there6.String()+"/64")
		d.stack(t, vni, own4.String()+"/24", own6.String()+"/64")
		echo(t, d.space, d.world, there4)
		echo(t, d.space, d.world, there6)
		echo(t, d.world, d.space, own4)
		echo(t, d.world, d.space, own6)
		for _, own := range []netip.Addr{own4, own6} {
			if got := d.world.neighbour(t, "ap-"+name, own); got != at[name].String() {
				t.Errorf("outside, %v is at %q, want the interface's %v", own, got, at[name])
			}
		}
		for _, there := range []netip.Addr{there4, there6} {
			if got := d.neighbour(t, vni, there); got != apMAC.String() {
				t.Errorf("for the device, %v is at %q, want %v", there, got, apMAC)
			}
		}
	}
}
