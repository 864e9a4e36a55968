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

// A run is several datagrams to one host, or from one, that pass the kernel as one message: it cuts them apart as late, and joins
// them as early, as it can (segmentation and receive offload: UDP_SEGMENT, UDP_GRO). All are of one size, but the last may be
// smaller. Where the kernel does not do that each datagram goes by itself.
const (
	// maxRun is how many bytes a run has at most.
	maxRun = 65_507
	// sizeControl is room for the control message that says of what size its datagrams are.
	sizeControl = 24
)

// join makes messages of frames, at most batch, without those to everybody.
func (s *Socket) join(frames [][]byte) []ipv4.Message {
	n, size, total := 0, 0, 0 // of the last message: size is zero if nothing may follow in it
	var to openflow.MAC       // and where that goes
	for _, f := range frames {
		there, f := openflow.MAC(f), f[headerSize:]
		switch {
		case there[0]&1 != 0:
			continue
		case n > 0 && there == to && len(f) > 0 && len(f) <= size && total+len(f) <= maxRun:
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
		if !s.runs {
			size = 0
		}
	}
	return s.out[:n]
}

// apart makes a message of each datagram.
func apart(ms []ipv4.Message) (all []ipv4.Message) {
	for _, m := range ms {
		for i := range m.Buffers {
			all = append(all, ipv4.Message{Buffers: m.Buffers[i : i+1], Addr: m.Addr})
		}
	}
	return all
}

// split adds the frames of a message to those that were received.
func (s *Socket) split(m *ipv4.Message) {
	from, err := MAC(m.Addr.(*net.UDPAddr).AddrPort())
	if err != nil {
		return
	}
	b, size := m.Buffers[0][:m.N], sizeOf(m.OOB[:m.NN])
	for size > 0 && len(b) > size {
		s.take(from, b[:size])
		b = b[size:]
	}
	s.take(from, b)
}

// take adds a frame to those that were received, unless it is larger than may be.
func (s *Socket) take(from openflow.MAC, payload []byte) {
	if len(payload) <= s.MTU {
		s.received = append(s.received, rawlink.Frame{From: from, Payload: payload})
	}
}

// sizeMessage makes the control message that says of what size datagrams are to be.
func sizeMessage(b []byte, size int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b[:unix.CmsgSpace(2)]
}

// sizeOf is of what size joined datagrams are, as a control message says; zero if it says nothing.
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
