package sos

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/network/packet"
)

// etherHeader is the size of the Ethernet header, which raw IP sockets do not take.
const etherHeader = 14

// synPacket returns the IPv4 packet of a connection's first segment.
func synPacket(from, to netip.AddrPort) []byte {
	frame := packet.AppendTCP(nil, packet.Frame{}, packet.TCPSegment{
		Src: from, Dst: to, Seq: binary.BigEndian.Uint32(from.Addr().AsSlice()), Flags: packet.SYN, Window: 65535,
	})
	return frame[etherHeader:]
}

// sendSYN sends a first packet from the client's host of which the host's kernel knows
// nothing.
func (w *world) sendSYN(from, to netip.AddrPort) {
	w.t.Helper()
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	err := w.lab.Host("client").Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, synPacket(from, to), 0, sa)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// rawSender returns a function that sends IPv4 packets from a host as they are.
func (w *world) rawSender(host string) func(ip []byte) error {
	w.t.Helper()
	var fd int
	err := w.lab.Host(host).Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Close(fd) })
	return func(ip []byte) error {
		return unix.Sendto(fd, ip, 0, &unix.SockaddrInet4{Addr: [4]byte(ip[16:20])})
	}
}

// watchFrames hands every frame that a host receives or sends to f until the test
// ends. The frame is overwritten after the call.
func (w *world) watchFrames(host string, f func(frame []byte)) {
	w.t.Helper()
	var socket *packetsocket.Socket
	err := w.lab.Host(host).Do(func() (err error) {
		socket, err = packetsocket.Open(nil, packetsocket.Options{Outgoing: true, Batch: 32, MaxFrame: 1 << 16})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = socket.Close() }()
		for w.t.Context().Err() == nil {
			frames, err := socket.ReceiveBatch(w.t.Context())
			if err != nil {
				continue // an interface went down, or the test ends
			}
			for _, one := range frames {
				f(one.Data)
			}
		}
	}()
	w.t.Cleanup(func() { <-done })
}
