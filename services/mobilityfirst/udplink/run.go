package udplink

import (
	"encoding/binary"
	"net"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

// A run is a sequence of datagrams to one host, or from one, that the kernel handles as one
// message: it splits the message as late, and joins the datagrams as early, as possible
// (segmentation and receive offload: UDP_SEGMENT, UDP_GRO). All datagrams of a run have the same
// size, except that the last may be smaller. If the kernel does not support runs, each datagram is
// a message.
const (
	// maxRunSize is the maximum size of a run in bytes.
	maxRunSize = 65_507
	// sizeControl is the size of the control message that contains the size of a run's datagrams.
	sizeControl = 24
)

// joinFrames makes at most batch messages of frames, without broadcast frames.
func (s *Socket) joinFrames(frames [][]byte) []ipv4.Message {
	n, size, total := 0, 0, 0 // the count; the size of the last message's datagrams, or zero if it takes no more; its total size
	var to openflow.MAC       // the destination of the last message
	for _, f := range frames {
		there, f := openflow.MAC(f), f[headerSize:]
		switch {
		case there[0]&1 != 0:
			continue
		case n > 0 && there == to && len(f) > 0 && len(f) <= size && total+len(f) <= maxRunSize:
			m := &s.out[n-1]
			m.Buffers = append(m.Buffers, f)
			m.OOB = sizeMessage(s.sizes[n-1][:], len(m.Buffers[0]))
			if total += len(f); len(f) < size {
				size = 0
			}
			continue
		}
		m := &s.out[n]
		m.Buffers, m.OOB, m.Addr = append(m.Buffers[:0], f), nil, net.UDPAddrFromAddrPort(Addr(there))
		n, to, size, total = n+1, there, len(f), len(f)
		if !s.segments {
			size = 0
		}
	}
	return s.out[:n]
}

// splitRuns makes a message of each datagram.
func splitRuns(ms []ipv4.Message) (all []ipv4.Message) {
	for _, m := range ms {
		for i := range m.Buffers {
			all = append(all, ipv4.Message{Buffers: m.Buffers[i : i+1], Addr: m.Addr})
		}
	}
	return all
}

// splitMessage adds the frames of a message to the received ones.
func (s *Socket) splitMessage(m *ipv4.Message) {
	from, err := MAC(m.Addr.(*net.UDPAddr).AddrPort())
	if err != nil {
		return
	}
	b, size := m.Buffers[0][:m.N], sizeOf(m.OOB[:m.NN])
	for size > 0 && len(b) > size {
		s.addReceived(from, b[:size])
		b = b[size:]
	}
	s.addReceived(from, b)
}

// addReceived adds a frame to the received ones, unless it is too large.
func (s *Socket) addReceived(from openflow.MAC, payload []byte) {
	if len(payload) <= s.MTU {
		s.received = append(s.received, rawlink.Frame{From: from, Payload: payload})
	}
}

// sizeMessage returns the control message that sets the size of datagrams.
func sizeMessage(b []byte, size int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b[:unix.CmsgSpace(2)]
}

// sizeOf returns the size of joined datagrams from a control message, or zero if it contains none.
func sizeOf(control []byte) int {
	if len(control) < unix.CmsgLen(4) {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	if h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_GRO {
		return 0
	}
	return int(binary.NativeEndian.Uint32(control[unix.CmsgLen(0):]))
}
