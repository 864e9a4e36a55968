package mobile_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

var both = []mobile.Interface{{Name: "eth0"}, {Name: "eth1"}}

// settle makes both sides know each other. Before that an answer may be lost: the router may ask
// for the device behind an interface that it is just leaving.
func (f *field) settle() {
	f.t.Helper()
	f.device.Run("ping", "-c", "1", "-w", "30", "10.8.0.1")
}

// TestSeamlessDevice of test/handover shows with a real network that no packet is lost between two
// interfaces.
func TestMovesBetweenTwoInterfaces(t *testing.T) {
	f := newField(t)
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	f.settle()
	// The router has another address behind each interface: both have to be known.
	f.until(c, "probed", func(s mobile.Status) bool { return s.Interfaces[0].RTT > 0 && s.Interfaces[1].RTT > 0 })
	conn := f.connection()
	for n := range 4 {
		to := both[(n+1)%2].Name
		m, err := c.Move(t.Context(), mobile.MoveRequest{Interface: to, Hold: -1})
		if err != nil {
			t.Fatal(err)
		}
		if !m.MakeBeforeBreak {
			t.Errorf("move %d: %+v", n, m)
		}
		conn.works()
		f.until(c, "on "+to, active(to))
	}
	f.end(unix.SIGTERM)
}

func TestLossOfTheLink(t *testing.T) {
	f := newField(t)
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	conn := f.connection()
	f.setLink("down")
	s := f.until(c, "moved", active("eth1"))
	if m := s.Moves[len(s.Moves)-1]; m.MakeBeforeBreak || !strings.Contains(m.Why, "no link") {
		t.Errorf("%+v", m)
	}
	conn.works()
	f.setLink("up")
	f.until(c, "back", active("eth0"))
	conn.works()
	f.end(unix.SIGTERM)
}

func TestOneInterfaceIsPluggedElsewhere(t *testing.T) {
	f := newField(t)
	c := f.start(both[0])
	f.until(c, "joined", active("eth0"))
	conn := f.connection()
	f.net.Log()
	for range 2 {
		f.setLink("down")
		f.setLink("up")
		before := f.until(c, "has a link", func(s mobile.Status) bool { return s.Interfaces[0].Joined })
		conn.works()
		if before.Lease.Address.String() != address {
			t.Errorf("address %v", before.Lease.Address)
		}
	}
	if log := f.net.Log(); len(log) < 2 || slices.ContainsFunc(log, func(l string) bool { return l != "REQUEST at eth0" }) {
		t.Errorf("the network was asked %v", log)
	}
	f.end(unix.SIGTERM)
}

// connection is a TCP connection from the device to the network and back.
type connection struct {
	f         *field
	near, far net.Conn
}

func (f *field) connection() *connection {
	f.t.Helper()
	var l net.Listener
	err := f.far.Do(func() (err error) { l, err = net.Listen("tcp4", "10.8.0.1:0"); return err })
	if err != nil {
		f.t.Fatal(err)
	}
	defer l.Close()
	c := &connection{f: f}
	err = f.device.Do(func() (err error) {
		c.near, err = net.DialTimeout("tcp4", l.Addr().String(), time.Minute)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if c.far, err = l.Accept(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.near.Close(); _ = c.far.Close() })
	return c
}

// works sends a byte there and back.
func (c *connection) works() {
	c.f.t.Helper()
	for _, way := range [][2]net.Conn{{c.near, c.far}, {c.far, c.near}} {
		deadline := time.Now().Add(time.Minute)
		if err := errors.Join(way[0].SetDeadline(deadline), way[1].SetDeadline(deadline)); err != nil {
			c.f.t.Fatal(err)
		}
		if _, err := way[0].Write([]byte{1}); err != nil {
			c.f.t.Fatal(err)
		}
		var b [1]byte
		if _, err := way[1].Read(b[:]); err != nil {
			c.f.t.Fatal(err)
		}
	}
}

func TestDeviceIsPutBack(t *testing.T) {
	f := newField(t)
	resolver := filepath.Join(f.dir, "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.device.Run("ip", "route", "add", "default", "via", "192.0.2.1")
	f.device.Run("ip", "link", "set", "eth1", "down")
	before := f.picture()
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	conn := f.connection()
	if during := f.picture(); during == before || strings.Contains(during, "192.0.2.") {
		t.Errorf("the daemon has not taken over:\n%s", during)
	}

	// Killed: the connection outlives the daemon, and the next one can restore the device.
	f.end(unix.SIGKILL)
	conn.works()
	f.net.Log()
	c = f.start(both...)
	f.until(c, "joined again", active("eth0"))
	if log := f.net.Log(); len(log) == 0 || log[0] != "REQUEST at eth0" {
		t.Errorf("the network was asked %v", log)
	}
	conn.works()

	f.end(unix.SIGTERM)
	if after := f.picture(); after != before {
		t.Errorf("the device is now:\n%s\nit was:\n%s", after, before)
	}
	if b, err := os.ReadFile(resolver); err != nil || string(b) != "nameserver 192.0.2.1\n" {
		t.Errorf("name servers %q, %v", b, err)
	}
}

// TestDeviceIsKept checks that a connection goes on after other programs have changed what the daemon
// has set up, that the daemon counts that, and that the device is as before when it ends.
func TestDeviceIsKept(t *testing.T) {
	f := newField(t)
	before := f.picture()
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	f.settle()
	conn := f.connection()
	counted := func(thing string, times uint64) func(mobile.Status) bool {
		return func(s mobile.Status) bool {
			return slices.ContainsFunc(s.Drift, func(d drift.Count) bool { return d.Thing == thing && d.Times >= times && d.Error == "" })
		}
	}
	for _, x := range []struct {
		change, thing string
		times         uint64
	}{
		{"tc qdisc del dev vni clsact && tc qdisc del dev eth0 clsact", "datapath of vni", 2},
		{"ip addr flush dev vni", "address and routes of vni", 1},
		{"ip route flush dev vni", "address and routes of vni", 2},
		{"ip addr add 192.0.2.99/24 dev eth0", "interface eth0", 1},
		{"echo 0 >/proc/sys/net/ipv6/conf/vni/disable_ipv6", "net.ipv6.conf.vni.disable_ipv6", 1},
		{"ip link del vni", "datapath of vni", 3},
	} {
		f.device.Run("sh", "-c", x.change)
		f.until(c, "restored after "+x.change, counted(x.thing, x.times))
		f.until(c, "has its address after "+x.change, func(mobile.Status) bool {
			now := f.device.Run("ip", "-4", "addr", "show")
			return strings.Contains(now, "inet "+address) && !strings.Contains(now, "192.0.2.99")
		})
		conn.works()
	}
	f.end(unix.SIGTERM)
	if after := f.picture(); after != before {
		t.Errorf("the device is now:\n%s\nit was:\n%s", after, before)
	}
}

func TestRestoreWithoutADaemon(t *testing.T) {
	f := newField(t)
	before := f.picture()
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	f.end(unix.SIGKILL)
	err := f.device.Do(func() error {
		n, err := mobile.Restore(context.Background(), mobile.Config{
			StateDir: f.dir, VNI: "vni", VNIMAC: vniMAC, Interfaces: both,
		})
		if n < 2 {
			t.Errorf("%d changes undone", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := f.picture(); after != before {
		t.Errorf("the device is now:\n%s\nit was:\n%s", after, before)
	}
}

func TestTwoDaemons(t *testing.T) {
	f := newField(t)
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	first, dir := f.cmd, f.dir
	for _, f.dir = range []string{dir, t.TempDir()} { // the second one has a folder of its own
		said := len(f.said())
		f.start(both...)
		if err := f.cmd.Wait(); err == nil || !strings.Contains(f.said()[said:], fmt.Sprintf("another process has it: %d (", first.Process.Pid)) {
			t.Errorf("a second daemon with the state in %s ran: %v: %s", f.dir, err, f.said()[said:])
		}
	}
	f.cmd, f.dir = first, dir
	f.until(c, "still there", active("eth0"))
	f.end(unix.SIGTERM)
}

// The lowered MTU of a radio causes no black hole: larger packets are refused or fragmented where
// they are sent, even if the lease allows more.
func TestMTUFollowsTheRadios(t *testing.T) {
	f := newField(t)
	c := f.start(both...)
	f.until(c, "joined", active("eth0"))
	f.settle()
	mtu := func(want string) func(mobile.Status) bool {
		return func(mobile.Status) bool {
			return strings.Contains(f.device.Run("ip", "link", "show", "vni"), "mtu "+want+" ")
		}
	}
	f.until(c, "at 1500", mtu("1500"))
	f.device.Run("ip", "link", "set", "eth1", "mtu", "1300")
	f.until(c, "at 1300", mtu("1300"))
	f.device.Run("ip", "link", "set", "eth0", "mtu", "1400")
	f.device.Run("ip", "link", "set", "eth1", "mtu", "1450")
	f.until(c, "at 1400", mtu("1400"))
	f.device.Run("ping", "-c", "1", "-w", "30", "-M", "do", "-s", "1372", "10.8.0.1")
	if out, err := f.device.Command(t.Context(), "ping", "-c", "1", "-w", "1", "-M", "do", "-s", "1373", "10.8.0.1").CombinedOutput(); err == nil || !strings.Contains(string(out), "too long") {
		t.Errorf("a packet that is too large: %v: %s", err, out)
	}
	f.end(unix.SIGTERM)
}
