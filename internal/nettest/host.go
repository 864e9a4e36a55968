package nettest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/namespace"
)

// Host is a network namespace in which a test runs functions and programs. It has no name, so it does
// not outlive the test's process.
type Host struct {
	tb testing.TB
	ns *os.File
}

// NewHost creates a namespace whose only interface is lo. It skips the test if the process is not
// root.
func NewHost(tb testing.TB) *Host {
	tb.Helper()
	live.Test(tb)
	h := &Host{tb: tb}
	err := namespace.Anonymous(func() (err error) {
		if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return setUp("lo")
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = h.ns.Close() })
	return h
}

// path returns a file that refers to the namespace, for child processes as well.
func (h *Host) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd()) }

// Do runs f on a thread that is in the namespace. f must not hand work to other goroutines.
func (h *Host) Do(f func() error) error { return namespace.Do(h.path(), f) }

// Must calls Do, and fails the test if f returns an error.
func (h *Host) Must(f func() error) {
	h.tb.Helper()
	if err := h.Do(f); err != nil {
		h.tb.Fatal(err)
	}
}

// Command returns a command that runs a program in the namespace.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + h.path(), "--", name}, args...)...)
}

// Run runs a program in the namespace and returns its output. It fails the test if the program
// fails.
func (h *Host) Run(name string, args ...string) string {
	h.tb.Helper()
	out, err := h.Command(context.WithoutCancel(h.tb.Context()), name, args...).CombinedOutput()
	if err != nil {
		h.tb.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// Port is one end of a cable.
type Port struct {
	On   *Host
	Name string
	// Address is the address of the interface; the zero value means none.
	Address netip.Prefix
}

// Cable joins two hosts by a veth pair, and returns once it carries frames.
func Cable(tb testing.TB, a, b Port) {
	tb.Helper()
	a.On.Must(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = a.Name
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerNamespace: netlink.NsFd(b.On.ns.Fd())})
	})
	for _, p := range []Port{a, b} {
		p.On.Must(p.configure)
	}
	for _, p := range []Port{a, b} {
		p.On.Must(p.awaitCarrier)
	}
}

// configure gives the end of a cable its address and sets the interface up.
func (p Port) configure() error {
	if p.Address.IsValid() {
		link, err := netlink.LinkByName(p.Name)
		if err != nil {
			return err
		}
		to := &net.IPNet{IP: p.Address.Addr().AsSlice(), Mask: net.CIDRMask(p.Address.Bits(), p.Address.Addr().BitLen())}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: to}); err != nil {
			return fmt.Errorf("address %v: %w", p.Address, err)
		}
	}
	return setUp(p.Name)
}

// carrierTimeout bounds the wait for a carrier.
const carrierTimeout = 30 * time.Second

// awaitCarrier waits until this end of a cable has a carrier, because frames that are sent before
// that are lost.
func (p Port) awaitCarrier() error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(carrierTimeout)
	for {
		link, err := netlink.LinkByName(p.Name)
		if err != nil || link.Attrs().OperState == netlink.OperUp {
			return err
		}
		select {
		case <-tick.C:
		case <-timeout:
			return fmt.Errorf("%s has no carrier after %v", p.Name, carrierTimeout)
		}
	}
}

// setUp sets an interface up.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}
