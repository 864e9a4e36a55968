package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/openflow"
)

// space is a network namespace without a name; it ends with the test.
type space struct{ file *os.File }

func newSpace(t testing.TB) *space {
	t.Helper()
	live.Test(t)
	s := &space{}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if s.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() { _ = s.file.Close() })
	return s
}

// onThread runs f on a thread that ends after it.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end
			result <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f()
	}()
	return <-result
}

// do runs f in the namespace.
func (s *space) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// must is do for steps without which a test cannot continue.
func (s *space) must(t testing.TB, f func() error) {
	t.Helper()
	if err := s.do(f); err != nil {
		t.Fatal(err)
	}
}

// start starts a program in the namespace and ends it with the test.
func (s *space) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	s.must(t, cmd.Start)
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

// run runs a program in the namespace to its end.
func (s *space) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out []byte
	err := s.do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// pair creates two connected interfaces.
func pair(t testing.TB, a *space, nameA string, macA openflow.MAC, b *space, nameB string, macB openflow.MAC) {
	t.Helper()
	a.must(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = nameA, macA[:]
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerHardwareAddr = nameB, macB[:]
		veth.PeerNamespace = netlink.NsFd(b.file.Fd())
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("veth %s-%s: %w", nameA, nameB, err)
		}
		return nil
	})
	a.up(t, nameA)
	b.up(t, nameB)
}

// up brings an interface up, without IPv6 addresses of its own: their solicitations would appear
// among the frames of the tests.
func (s *space) up(t testing.TB, name string) {
	t.Helper()
	s.must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
		return netlink.LinkSetUp(link)
	})
}

// address gives an interface an address and a neighbour that needs no ARP.
func (s *space) address(t testing.TB, name string, own netip.Prefix, peer netip.Addr, peerMAC openflow.MAC) {
	t.Helper()
	s.must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), own.Addr().BitLen())}}),
			netlink.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: peer.AsSlice(), HardwareAddr: peerMAC[:],
			}),
		)
	})
}

// wire is a packet socket on an interface: it receives what a network analyser would.
type wire struct {
	fd int
	to unix.SockaddrLinklayer
}

const ignoreOutgoing = 23 // PACKET_IGNORE_OUTGOING

func (s *space) tap(t testing.TB, name string) *wire {
	t.Helper()
	w := &wire{fd: -1}
	s.must(t, func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)<<8 | unix.ETH_P_ALL>>8
		w.to = unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, ignoreOutgoing, 1),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}),
			unix.Bind(w.fd, &w.to))
	})
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	return w
}

func (w *wire) send(t testing.TB, frame []byte) {
	t.Helper()
	if err := unix.Sendto(w.fd, frame, 0, &w.to); err != nil {
		t.Fatal(err)
	}
}

// next returns the next frame that comes in.
func (w *wire) next(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 65536)
	n, _, err := unix.Recvfrom(w.fd, b, 0)
	if err != nil {
		t.Fatalf("no frame arrives: %v", err)
	}
	return b[:n]
}

// drain discards the frames that have come in.
func (w *wire) drain() {
	b := make([]byte, 65536)
	for {
		if _, _, err := unix.Recvfrom(w.fd, b, unix.MSG_DONTWAIT); err != nil {
			return
		}
	}
}

// eventually polls until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
