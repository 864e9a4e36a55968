package ingress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestOutput checks that a channel's datagrams leave by the interface of the data address, from
// the channel's port, to an address without a route and without a host, and that a burst to a
// host has the same source port.
func TestOutput(t *testing.T) {
	gw, peer := newHosts(t)
	taken := capture(t, peer)
	o := newOutputs(gwAddr, slog.New(slog.DiscardHandler))
	var outs []output
	for _, number := range []uint16{7, 8} {
		out := openIn(t, gw, o, number)
		outs = append(outs, out)
	}
	wantNeighbour(t, gw, true)
	hello := []byte("hello")
	if err := outs[0].send(hello, mediaTo); err != nil {
		t.Fatal(err)
	}
	frame := taken(t, mediaAddr)
	from := netip.AddrPortFrom(gwAddr, gatewayapi.SourcePort(7))
	if !bytes.Equal(frame[:6], mediaMAC) || sourceIn(frame) != from || binary.BigEndian.Uint16(frame[36:]) != gatewayapi.MediaPort || !bytes.Equal(frame[42:47], hello) {
		t.Errorf("%x", frame)
	}
	if err := outs[0].send(hello, netip.AddrPortFrom(peerAddr, 5000)); err != nil {
		t.Fatal(err)
	}
	var mac net.HardwareAddr
	peer.Must(func() error {
		i, err := net.InterfaceByName(dev)
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	})
	if frame := taken(t, peerAddr); sourceIn(frame) != from || !bytes.Equal(frame[:6], mac) {
		t.Errorf("a burst: %x", frame)
	}
	gw.Must(func() error {
		if out, err := o.open(mediaAddr, gatewayapi.SourcePort(7)); err == nil {
			_ = out.Close()
			return errors.New("two channels have one port")
		}
		return nil
	})
	closeIn(t, gw, outs[0])
	wantNeighbour(t, gw, true) // of the other channel
	closeIn(t, gw, outs[1])
	wantNeighbour(t, gw, false)
	gw.Must(func() error {
		if _, err := (&outputs{from: netip.MustParseAddr("203.0.113.1")}).open(mediaAddr, 1); err == nil {
			return errors.New("an address of no interface is taken")
		}
		return nil
	})
}

// TestNeighboursAreRestored checks that the neighbour entry of a media address is restored when it is
// removed, changed, or lost with the state of its interface, and not when it is no longer needed.
func TestNeighboursAreRestored(t *testing.T) {
	gw, _ := newHosts(t)
	o := newOutputs(gwAddr, slog.New(slog.DiscardHandler))
	out := openIn(t, gw, o, 7)
	for _, change := range [][]string{
		nil,
		{"ip neigh del " + mediaAddr.String() + " dev " + dev},
		{"ip neigh replace " + mediaAddr.String() + " lladdr 02:00:00:00:00:99 nud permanent dev " + dev},
		{"ip neigh replace " + mediaAddr.String() + " lladdr " + mediaMAC.String() + " nud reachable dev " + dev},
		{"ip link set " + dev + " down", "ip link set " + dev + " up"},
	} {
		for _, c := range change {
			gw.Run("sh", "-c", c)
		}
		for i, want := range []int{min(len(change), 1), 0} {
			gw.Must(func() error {
				if n, err := o.thing().Restore(t.Context()); n != want || err != nil {
					t.Errorf("%q: comparison %d has found %d differences, want %d: %v", change, i, n, want, err)
				}
				return nil
			})
		}
		wantNeighbour(t, gw, true)
	}
	closeIn(t, gw, out)
	gw.Must(func() error {
		if n, err := o.restore(); n != 0 || err != nil {
			t.Errorf("without outputs: %d differences, %v", n, err)
		}
		return nil
	})
	wantNeighbour(t, gw, false)
}

// gwAddr and peerAddr are the addresses of newHosts on their interfaces dev.
var gwAddr, peerAddr = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

const dev = "eth0"

// newHosts returns a gateway's host and another one, joined by a cable.
func newHosts(t *testing.T) (gw, peer *nettest.Host) {
	t.Helper()
	gw, peer = nettest.NewHost(t), nettest.NewHost(t)
	nettest.Cable(t, nettest.Port{On: gw, Name: dev, Address: netip.PrefixFrom(gwAddr, 24)}, nettest.Port{On: peer, Name: dev, Address: netip.PrefixFrom(peerAddr, 24)})
	return gw, peer
}

func openIn(t *testing.T, h *nettest.Host, o *outputs, number uint16) (out output) {
	t.Helper()
	h.Must(func() (err error) {
		out, err = o.open(mediaAddr, gatewayapi.SourcePort(number))
		return err
	})
	return out
}

func closeIn(t *testing.T, h *nettest.Host, out output) {
	t.Helper()
	h.Must(out.Close)
}

// wantNeighbour checks whether a host's neighbour table has the media address.
func wantNeighbour(t *testing.T, h *nettest.Host, want bool) {
	t.Helper()
	h.Must(func() error {
		all, err := netlink.NeighList(0, unix.AF_INET)
		if err != nil {
			return err
		}
		have := false
		for _, x := range all {
			have = have || x.IP.Equal(mediaAddr.AsSlice()) && x.State == netlink.NUD_PERMANENT && bytes.Equal(x.HardwareAddr, mediaMAC)
		}
		if have != want {
			return errors.New("the neighbour is there at the wrong time, or not there")
		}
		return nil
	})
}

// sourceIn returns the source of a frame with a UDP datagram.
func sourceIn(frame []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[26:30])), binary.BigEndian.Uint16(frame[34:]))
}

// capture opens a socket for everything that arrives at a host, and returns a function that
// waits for a frame to an address.
func capture(t *testing.T, h *nettest.Host) func(*testing.T, netip.Addr) []byte {
	t.Helper()
	var socket *packetsocket.Socket
	h.Must(func() error {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		socket, err = packetsocket.Open(link, packetsocket.Options{Protocol: unix.ETH_P_IP})
		return err
	})
	t.Cleanup(func() { _ = socket.Close() })
	return func(t *testing.T, to netip.Addr) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			f, err := socket.Receive(ctx)
			if err != nil {
				t.Fatalf("nothing comes for %v: %v", to, err)
			}
			const udp = 17
			if len(f.Data) >= 47 && f.Data[23] == udp && netip.AddrFrom4([4]byte(f.Data[30:34])) == to {
				return f.Data
			}
		}
	}
}
