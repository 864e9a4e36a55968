package rawlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cable is two sockets with a cable between them, in a network namespace of the test's thread.
func cable(tb testing.TB, mtu int) (a, b *Socket) {
	tb.Helper()
	nettest.Namespace(tb)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000, MTU: mtu}, PeerName: "b", PeerMTU: uint32(mtu)}
	if err := netlink.LinkAdd(veth); err != nil {
		tb.Fatal(err)
	}
	var both []*Socket
	for _, name := range []string{"a", "b"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			tb.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			tb.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			tb.Fatal(err)
		}
		s, err := Open(ifi)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = s.Close() })
		both = append(both, s)
	}
	return both[0], both[1]
}

// Frames arrive as they were sent, with the sender's address and their labels, and no others do.
func TestFramesWithLabels(t *testing.T) {
	a, b := cable(t, 1500)
	var frames [][]byte
	for i := range 200 {
		label := uint16(i * 17 % 4095)
		frames = append(frames, fmt.Appendf(a.AppendHeader(nil, b.MAC, label), "frame %d with label %d, and as long as an Ethernet frame has to be", i, label))
	}
	other := append(a.AppendHeader(nil, b.MAC, 0), make([]byte, 60)...)
	other[headerSize-1]++
	if err := a.Send([][]byte{other}); err != nil {
		t.Fatal(err)
	}
	largest := append(a.AppendHeader(nil, b.MAC, 4094), bytes.Repeat([]byte{1}, 1500)...)
	if err := a.Send(append(frames, largest)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := 0; i <= len(frames); {
		got, err := b.Receive(ctx)
		if err != nil {
			t.Fatalf("%d have come: %v", i, err)
		}
		for _, f := range got {
			label, want := uint16(4094), largest[headerSize+tagSize:]
			if i < len(frames) {
				label = uint16(i * 17 % 4095)
				if want = frames[i][headerSize:]; label != 0 {
					want = want[tagSize:]
				}
			}
			if f.From != a.MAC || f.Label != label || !bytes.Equal(f.Payload, want) {
				t.Errorf("frame %d: from %v, label %d, %.80q; want %v, %d, %.80q", i, f.From, f.Label, f.Payload, a.MAC, label, want)
			}
			i++
		}
	}
}

// What is for another station is not heard, also where somebody has the interface hear all.
func TestOthersFrames(t *testing.T) {
	a, b := cable(t, 1500)
	link, err := netlink.LinkByName("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.SetPromiscOn(link); err != nil {
		t.Fatal(err)
	}
	other := b.MAC
	other[5]++
	for _, to := range []openflow.MAC{other, openflow.Broadcast, b.MAC} {
		if err := a.Send([][]byte{append(a.AppendHeader(nil, to, 7), to[:]...)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for wanted := []openflow.MAC{openflow.Broadcast, b.MAC}; len(wanted) > 0; {
		got, err := b.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			if to := openflow.MAC(f.Payload); to != wanted[0] {
				t.Fatalf("a frame for %v has come, want one for %v", to, wanted[0])
			}
			wanted = wanted[1:]
		}
	}
}

// A frame that is larger than the link allows is an error of Send.
func TestTooLarge(t *testing.T) {
	a, b := cable(t, 1500)
	if err := a.Send([][]byte{append(a.AppendHeader(nil, b.MAC, 0), make([]byte, 1501)...)}); !errors.Is(err, unix.EMSGSIZE) {
		t.Error(err)
	}
}

// Receive ends with its context, and when the socket is closed.
func TestReceiveEnds(t *testing.T) {
	a, _ := cable(t, 1500)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	receive := func() { _, err := a.Receive(ctx); ended <- err }
	go receive()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx = t.Context()
	go receive()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a closed socket has received something")
	}
}

// BenchmarkFrames is how many frames a second go over a cable, sent and received on this machine.
func BenchmarkFrames(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			x, y := cable(b, mtu)
			frames := make([][]byte, batch)
			for i := range frames {
				frames[i] = append(x.AppendHeader(nil, y.MAC, 7), make([]byte, mtu)...)
			}
			b.SetBytes(int64(mtu))
			for sent := 0; sent < b.N; sent += batch {
				if err := x.Send(frames); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < batch; {
					all, err := y.Receive(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					got += len(all)
				}
			}
		})
	}
}
