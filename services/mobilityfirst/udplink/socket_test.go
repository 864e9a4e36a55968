package udplink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each address has an Ethernet address of one host, and back.
func TestAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(rapid.IntRange(1, 223).Draw(t, "a")), rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")}), 2*rapid.Uint16Range(1, 32767).Draw(t, "port"))
		m, err := MAC(at)
		if err != nil || m[0]&1 != 0 || Addr(m) != at {
			t.Fatalf("%v is %v, which is %v, %v", at, m, Addr(m), err)
		}
	})
	for _, wrong := range []string{"0.0.0.0:2", "192.0.2.1:0", "192.0.2.1:5027", "[2001:db8::1]:5028", "224.0.0.1:5028"} {
		if m, err := MAC(netip.MustParseAddrPort(wrong)); !errors.Is(err, ErrAddress) {
			t.Errorf("%s is %v, %v", wrong, m, err)
		}
	}
}

// open opens a socket at a port that is free.
func open(t *testing.T, ip string) (*Socket, openflow.MAC) {
	t.Helper()
	for port := uint16(20_000); port < 60_000; port += 2 {
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
		s, err := Open(at)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = s.Close() })
		m, err := MAC(at)
		if err != nil {
			t.Fatal(err)
		}
		return s, m
	}
	t.Fatal("no port is free")
	return nil, openflow.MAC{}
}

// everybody is where nobody is.
var everybody = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// receive receives until each of the frames, which were sent in this order, has come as it was.
func receive(t rapid.TB, s *Socket, from openflow.MAC, want [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for n := 0; n < len(want); {
		got, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("%v, with %d of %d", err, n, len(want))
		}
		for _, f := range got {
			if n == len(want) || f.From != from || f.Label != 0 || !bytes.Equal(f.Payload, want[n][headerSize:]) {
				t.Fatalf("frame %d of %d: %d bytes from %v, label %d", n, len(want), len(f.Payload), f.From, f.Label)
			}
			n++
		}
	}
}

// Frames arrive as they were, from who has sent them; those to everybody, and what comes from odd ports or is too
// long, do not.
func TestSocket(t *testing.T) {
	a, from := open(t, "127.0.0.1")
	b, to := open(t, "127.0.0.2")
	long, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3), Port: int(Addr(to).Port())}, net.UDPAddrFromAddrPort(Addr(to)))
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	if _, err := long.Write(make([]byte, b.MTU+1)); err != nil {
		t.Fatal(err)
	}
	odd, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3), Port: int(Addr(to).Port()) + 1}, net.UDPAddrFromAddrPort(Addr(to)))
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	if _, err := odd.Write([]byte("odd")); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for i := range 40 {
		frames = append(frames, append(a.AppendHeader(nil, to, 7), bytes.Repeat([]byte{byte(i)}, i*30)...))
	}
	if err := a.Send(append(frames, append(a.AppendHeader(nil, everybody, 0), 1))); err != nil {
		t.Fatal(err)
	}
	receive(t, b, from, frames)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Receive(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Receive(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := b.Send(frames[:1]); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sent over a closed socket: %v", err)
	}
}

// Frames of all sizes to several hosts arrive as they were, in order, whether or not the kernel cuts runs of them apart, and
// joins what arrives.
func TestRuns(t *testing.T) {
	for name, offload := range map[string]bool{"with offload": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			a, from := open(t, "127.0.0.1")
			var there [2]*Socket
			var to [2]openflow.MAC
			for i, ip := range []string{"127.0.0.2", "127.0.0.3"} {
				there[i], to[i] = open(t, ip)
				if !offload {
					without(t, there[i])
				}
			}
			a.segments = a.segments && offload
			rapid.Check(t, func(t *rapid.T) {
				sent := [2][][]byte{}
				var all [][]byte
				total := 0
				for len(all) < 100 && total < 100_000 && rapid.IntRange(0, 20).Draw(t, "more") > 0 {
					host, size, n := rapid.IntRange(0, 1).Draw(t, "host"), rapid.OneOf(rapid.IntRange(0, 2000), rapid.IntRange(0, a.MTU)).Draw(t, "size"), rapid.IntRange(1, 30).Draw(t, "times")
					for range min(n, 1+100_000/(size+1)) {
						f := append(a.AppendHeader(nil, to[host], 0), bytes.Repeat([]byte{byte(len(all))}, size)...)
						all, sent[host] = append(all, f), append(sent[host], f)
						total += size
					}
				}
				if err := a.Send(all); err != nil {
					t.Fatal(err)
				}
				for i, s := range there {
					receive(t, s, from, sent[i])
				}
			})
		})
	}
}

// without has the kernel not join what arrives at a socket.
func without(t *testing.T, s *Socket) {
	t.Helper()
	raw, err := s.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 0) }), err); err != nil {
		t.Skip(err)
	}
}

// A run that the kernel refuses is sent datagram by datagram.
func TestRefusedRun(t *testing.T) {
	a, from := open(t, "127.0.0.1")
	b, to := open(t, "127.0.0.2")
	var frames [][]byte
	for i := range 10 {
		frames = append(frames, append(a.AppendHeader(nil, to, 0), bytes.Repeat([]byte{byte(i)}, 100)...))
	}
	ms := a.joinFrames(frames)
	if a.segments && len(ms) != 1 {
		t.Fatalf("%d messages", len(ms))
	}
	if n, err := a.all.WriteBatch(splitRuns(ms), 0); n != len(frames) || err != nil {
		t.Fatal(n, err)
	}
	receive(t, b, from, frames)
}

// A control message says a size, and others say none.
func TestSizes(t *testing.T) {
	b := make([]byte, sizeControl)
	if n := sizeOf(sizeMessage(b, 1232)); n != 0 {
		t.Errorf("what is sent says %d", n)
	}
	for size, joined := range map[uint32]int{0: 0, 1: 1, 1232: 1232, 65_507: 65_507} {
		clear(b)
		sizeMessage(b, 0)
		b[unix.CmsgLen(0)-4] = unix.UDP_GRO
		binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], size)
		if n := sizeOf(b); n != joined {
			t.Errorf("%d says %d", size, n)
		}
	}
	if n := sizeOf(nil); n != 0 {
		t.Errorf("nothing says %d", n)
	}
}
