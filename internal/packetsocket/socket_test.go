package packetsocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/nettest"
)

// cable moves the test's thread into a new network namespace with a cable between two interfaces,
// and returns these.
func cable(t *testing.T) (a, b *net.Interface) {
	t.Helper()
	nettest.Namespace(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000, MTU: 4000}, PeerName: "b", PeerMTU: 4000}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	var both []*net.Interface
	for _, name := range []string{"a", "b"} {
		awaitUp(t, name)
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, ifi)
	}
	return both[0], both[1]
}

// awaitUp waits until an interface is up: the kernel drops frames that are sent before.
func awaitUp(t *testing.T, name string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("interface %s is %v", name, link.Attrs().OperState)
		}
	}
}

func open1(t *testing.T, ifi *net.Interface, o Options) *Socket {
	t.Helper()
	s, err := Open(ifi, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// marked is an EtherType for experiments (IEEE 802), which no protocol of the kernel uses.
const marked = 0x88b5

// frame returns a broadcast frame with a payload of the given size, whose bytes are all n.
func frame(n byte, size int) []byte {
	return append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, marked >> 8, marked & 0xff}, bytes.Repeat([]byte{n}, size)...)
}

// onlyMarked passes the test's own frames, and none of the kernel's.
var onlyMarked = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: marked, SkipFalse: 1},
	bpf.RetConstant{Val: WholeFrame},
	bpf.RetConstant{},
}

// receiveAll receives as many frames, by batches, and checks their first byte of payload.
func receiveAll(t *testing.T, s *Socket, want ...byte) (all []Frame) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(all) < len(want) {
		got, err := s.ReceiveBatch(ctx)
		if err != nil {
			t.Fatalf("after %d frames: %v", len(all), err)
		}
		for _, f := range got {
			f.Data = bytes.Clone(f.Data)
			all = append(all, f)
		}
	}
	for i, f := range all {
		if i >= len(want) || len(f.Data) < 15 || f.Data[14] != want[i] {
			t.Fatalf("frame %d is % x; want those with %v", i, f.Data, want)
		}
	}
	return all
}

// TestBatches checks that frames of several batches arrive in their order, and what is larger than
// the socket's frames is dropped and counted.
func TestBatches(t *testing.T) {
	a, b := cable(t)
	sender, receiver := open1(t, a, Options{SendOnly: true, Batch: 8, BypassQueue: true}), open1(t, b, Options{Filter: onlyMarked, Batch: 8, MaxFrame: 1000, Buffer: 4 << 20})
	var frames [][]byte
	var want []byte
	for n := range byte(100) {
		if n%10 == 0 {
			frames = append(frames, frame(n, 1000-14+1))
			continue
		}
		frames, want = append(frames, frame(n, 1000-14)), append(want, n)
	}
	if err := sender.SendBatch(frames); err != nil {
		t.Fatal(err)
	}
	for i, f := range receiveAll(t, receiver, want...) {
		if len(f.Data) != 1000 {
			t.Errorf("frame %d has %d bytes", i, len(f.Data))
		}
	}
	if n := receiver.Dropped(); n != 10 {
		t.Errorf("%d frames were dropped as too large, want 10", n)
	}
	if err := sender.SendBatch([][]byte{frame(1, 50), frame(2, 4001), frame(3, 50)}); !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(err.Error(), "interface a") {
		t.Errorf("a frame that the link does not carry: %v", err)
	}
	receiveAll(t, receiver, 1)
}

// TestSingleFrames checks that Receive hands over frames one by one, and their memory with them.
func TestSingleFrames(t *testing.T) {
	a, b := cable(t)
	sender, receiver := open1(t, a, Options{}), open1(t, b, Options{Filter: onlyMarked, Batch: 8})
	var all []Frame
	for n := range byte(3) {
		if err := sender.Send(frame(n, 50)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		f, err := receiver.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	for n, f := range all {
		if !bytes.Equal(f.Data, frame(byte(n), 50)) {
			t.Errorf("frame %d: % x", n, f.Data)
		}
	}
}

// TestMetadata checks what the kernel reports beside a frame.
func TestMetadata(t *testing.T) {
	a, b := cable(t)
	sender, receiver := open1(t, a, Options{}), open1(t, b, Options{Filter: onlyMarked, Batch: 4, Timestamps: true})
	plain := frame(1, 50)
	tagged := append(binary.BigEndian.AppendUint16(bytes.Clone(plain[:12]), unix.ETH_P_8021Q), append([]byte{0xe0 | 3, 7}, plain[12:]...)...)
	for _, f := range [][]byte{plain, tagged} {
		if err := sender.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range receiveAll(t, receiver, 1, 1) {
		if want := []uint16{0, 0x307}[i]; f.VLAN != want || !bytes.Equal(f.Data, plain) {
			t.Errorf("frame %d: VLAN %#x, % x; want %#x, % x", i, f.VLAN, f.Data, want, plain)
		}
		if f.Time.IsZero() || f.Time.Year() < 2000 {
			t.Errorf("frame %d came at %v", i, f.Time)
		}
		if f.ChecksumMissing {
			t.Errorf("frame %d lacks a checksum, and has none", i)
		}
	}
	if f := receiveOutgoing(t, a); f.Time != (time.Time{}) {
		t.Errorf("a time without Timestamps: %v", f.Time)
	}
}

// receiveOutgoing sends a frame, and returns it as received by a socket on the same interface.
func receiveOutgoing(t *testing.T, ifi *net.Interface) Frame {
	t.Helper()
	watcher, sender := open1(t, ifi, Options{Filter: onlyMarked, Outgoing: true}), open1(t, ifi, Options{SendOnly: true})
	if err := sender.Send(frame(9, 50)); err != nil {
		t.Fatal(err)
	}
	return receiveAll(t, watcher, 9)[0]
}

// TestChecksumMissing checks that a datagram of this machine, whose checksum no network card has
// completed, is marked.
func TestChecksumMissing(t *testing.T) {
	nettest.Namespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	ifi, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	receiver := open1(t, ifi, Options{Filter: UDPTo(4000)})
	conn, err := net.Dial("udp4", "127.0.0.1:4000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if f, err := receiver.Receive(ctx); err != nil || !f.ChecksumMissing {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestDirections checks which frames a socket does not receive: by default those that this machine
// sends, with a protocol those of others, with SendOnly all. The last frame is for all receivers,
// so nothing else can come after it.
func TestDirections(t *testing.T) {
	a, b := cable(t)
	here, there := open1(t, a, Options{Filter: onlyMarked, Batch: 2}), open1(t, b, Options{})
	everywhere := open1(t, nil, Options{Protocol: marked, NetworkLayer: true, Batch: 2})
	if err := here.Send(frame(1, 50)); err != nil {
		t.Fatal(err)
	}
	other := frame(2, 50)
	other[13]++
	for _, f := range [][]byte{other, frame(3, 50)} {
		if err := there.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	receiveAll(t, here, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []byte{1, 3} {
		if f, err := everywhere.Receive(ctx); err != nil || !bytes.Equal(f.Data, frame(want, 50)[14:]) {
			t.Errorf("at the network layer: % x, %v; want the payload of %d", f.Data, err, want)
		}
	}
	if _, err := open1(t, a, Options{SendOnly: true}).ReceiveBatch(ctx); !errors.Is(err, errSendOnly) {
		t.Errorf("a socket that only sends: %v", err)
	}
}

// TestAllMulticast checks that an interface accepts all groups for as long as the socket is open.
func TestAllMulticast(t *testing.T) {
	a, _ := cable(t)
	accepted := func() bool {
		out, err := exec.Command("ip", "-details", "link", "show", a.Name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return !strings.Contains(string(out), " allmulti 0 ")
	}
	s, err := Open(a, Options{SendOnly: true, AllMulticast: true})
	if err != nil {
		t.Fatal(err)
	}
	if !accepted() {
		t.Error("the interface does not accept all groups")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if accepted() {
		t.Error("the interface accepts all groups after the socket was closed")
	}
}

func TestReceiveEndsWithContextAndClose(t *testing.T) {
	_, b := cable(t)
	s := open1(t, b, Options{Filter: onlyMarked})
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
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed socket: %v", err)
	}
}

func TestInterfaceGoesDown(t *testing.T) {
	_, b := cable(t)
	s := open1(t, b, Options{Filter: onlyMarked})
	link, err := netlink.LinkByIndex(b.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Receive(ctx); !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "interface b") {
		t.Errorf("receive: %v", err)
	}
	if err := s.Send(frame(1, 50)); !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "interface b") {
		t.Errorf("send: %v", err)
	}
}

// TestOpenErrors checks that errors say on which interface what failed, and which privilege is
// missing.
func TestOpenErrors(t *testing.T) {
	nettest.Namespace(t)
	gone := &net.Interface{Index: 9999, Name: "gone"}
	if _, err := Open(gone, Options{}); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "interface gone: bind") {
		t.Errorf("an interface that does not exist: %v", err)
	}
	if _, err := Open(nil, Options{Filter: []bpf.Instruction{bpf.Jump{Skip: 5}}}); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "filter") {
		t.Errorf("a filter that jumps past its end: %v", err)
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread, which lacks privileges, ends with the goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			ended <- err
			return
		}
		_, err := Open(nil, Options{})
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, ErrPrivilege) || !errors.Is(err, unix.EPERM) {
		t.Errorf("without privileges: %v", err)
	}
}
