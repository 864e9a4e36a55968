package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
)

// TestNextHopIsAskedForWithoutAPacket checks that a next hop is resolved without a packet with the
// session's addresses. A switch would cache the decision about such a packet, and use it for the
// session's first packet.
func TestNextHopIsAskedForWithoutAPacket(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			n := newChain(t, 1500, v6)
			frames, mac := tap(t, n.c, "x")
			fromX := func(f func() error) {
				t.Helper()
				if err := inNamespace(n.x, f); err != nil {
					t.Fatal(err)
				}
			}
			var toClient route
			fromX(func() (err error) { toClient, err = routeTo(n.client); return err })
			fromX(func() error {
				if known := toClient.nextHopMAC(); known != "" {
					t.Errorf("known before it was asked for: %s", known)
				}
				return nil
			})
			eventually(t, "the next hop is resolved", func() bool {
				resolved := ""
				fromX(func() error { resolved = toClient.nextHopMAC(); return nil })
				if resolved != "" && resolved != mac {
					t.Fatalf("resolved to %s, want %s", resolved, mac)
				}
				return resolved != ""
			})
			last := []byte("what comes after the questions")
			fromX(func() error {
				c, err := net.Dial("udp", netip.AddrPortFrom(n.client, 9).String())
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write(last)
				return err
			})
			for f := frames(); !bytes.HasSuffix(f, last); f = frames() {
				if !resolution(f) {
					t.Errorf("not a question for an address: % x", f)
				}
			}
		})
	}
}

// resolution reports whether a frame is ARP or ICMPv6. The kernel also sends some ICMPv6 by itself.
func resolution(frame []byte) bool {
	const etherType, next6 = 12, 14 + 6
	switch binary.BigEndian.Uint16(frame[etherType:]) {
	case unix.ETH_P_ARP:
		return true
	case unix.ETH_P_IPV6:
		return frame[next6] == unix.IPPROTO_ICMPV6 || frame[next6] == unix.IPPROTO_HOPOPTS
	}
	return false
}

// tap returns a function that returns the next frame that arrives at an interface, and the
// interface's MAC address.
func tap(t *testing.T, ns, dev string) (next func() []byte, mac string) {
	t.Helper()
	var socket *packetsocket.Socket
	err := inNamespace(ns, func() error {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		mac = link.HardwareAddr.String()
		socket, err = packetsocket.Open(link, packetsocket.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return func() []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		f, err := socket.Receive(ctx)
		if err != nil {
			t.Fatalf("frames at %s of %s: %v", dev, ns, err)
		}
		return f.Data
	}, mac
}
