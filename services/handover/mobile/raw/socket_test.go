package raw

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// cable moves the test's thread into a new network namespace with a cable between two interfaces,
// and returns their indexes.
func cable(t *testing.T) (a, b int) {
	t.Helper()
	nettest.Namespace(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000, MTU: 1500}, PeerName: "b"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for _, name := range []string{"a", "b"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
		index[name] = link.Attrs().Index
	}
	for _, i := range index {
		carries(t, i)
	}
	return index["a"], index["b"]
}

// carries waits until an interface is up: the kernel drops frames that are sent before.
func carries(t *testing.T, index int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("interface %d is %v", index, link.Attrs().OperState)
		}
	}
}

func open(t *testing.T, index int, f Filter) *Socket {
	t.Helper()
	s, err := Open(index, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func udp(dst uint16, options int, fragment uint16) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 8, 0)
	b = append(b, byte(0x45+options), 0, 0, byte(28+4*options), 0, 0, byte(fragment>>8), byte(fragment), 64, 17, 0, 0)
	b = append(b, 10, 0, 0, 1, 10, 0, 0, 2)
	b = append(b, make([]byte, 4*options)...)
	b = append(b, 0, 67, byte(dst>>8), byte(dst), 0, 8, 0, 0)
	return append(b, make([]byte, 20)...)
}

// icmp returns a packet of the type, with an option, which may be a fragment.
func icmp(kind byte, fragment uint16) []byte {
	b := udp(uint16(kind)<<8, 1, fragment)
	b[23], b[38] = 1, kind
	return b
}

func TestFilters(t *testing.T) {
	a, b := cable(t)
	sender := open(t, a, nil)
	mac, gateway := openflow.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.1")
	request := packet.AppendARPRequest(nil, mac, netip.IPv4Unspecified(), gateway, 0)
	var h packet.Headers
	if err := h.Parse(request); err != nil {
		t.Fatal(err)
	}
	reply := packet.AppendARPReply(nil, &h, openflow.MAC{2, 0, 0, 0, 0, 9})
	ping, pong, pongs := icmp(8, 0), icmp(0, 0), icmp(0, 0x2000)
	for _, c := range []struct {
		name   string
		filter Filter
		frames [][]byte
		want   []int
	}{
		{"UDP to 68", UDPTo(68), [][]byte{udp(67, 0, 0), udp(68, 0, 0), reply, udp(68, 3, 0x4000), udp(68, 0, 0x2000), udp(68, 0, 1), udp(68, 0, 0)}, []int{1, 3, 6}},
		{"answers to probes", ProbeAnswers(), [][]byte{request, udp(68, 0, 0), reply, ping, pong, pongs, pong}, []int{2, 4, 6}},
	} {
		// No subtests: they would run on threads outside the namespace.
		receiver := open(t, b, c.filter)
		for _, f := range c.frames {
			if err := sender.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for _, n := range c.want {
			got, err := receiver.Receive(ctx)
			if err != nil {
				t.Fatalf("%s: frame %d: %v", c.name, n, err)
			}
			if !bytes.HasPrefix(got.Data, c.frames[n]) {
				t.Fatalf("%s: want frame %d, got % x", c.name, n, got.Data)
			}
		}
		// Everything was sent before, so all frames that the filter passes have arrived.
		soon, stop := context.WithTimeout(ctx, 20*time.Millisecond)
		if f, err := receiver.Receive(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: one more frame % x, %v", c.name, f.Data, err)
		}
		stop()
		cancel()
	}
}

func TestReceiveEndsWithContextAndClose(t *testing.T) {
	_, b := cable(t)
	s := open(t, b, ProbeAnswers())
	for range 3 { // the deadline of one call must not affect the next
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		cancel()
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Receive(context.Background())
		done <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a closed socket received a frame")
	}
	if _, err := Open(9999, nil); err == nil {
		t.Error("a socket on an interface that does not exist")
	}
}

func TestInterfaceGoesDown(t *testing.T) {
	a, b := cable(t)
	s := open(t, b, ProbeAnswers())
	link, err := netlink.LinkByIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Receive(ctx); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("receive: %v", err)
	}
	if err := s.Send(udp(68, 0, 0)); err == nil {
		t.Error("sent on an interface that is down")
	}
	_ = a
}
