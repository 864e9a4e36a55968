package agent

import (
	"context"
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// A client may give up while its session is being set up. Its kernel then answers the agent's
// SYN-ACK with a reset, and the agent's kernel drops the half-open connection without informing the
// listener. The server would then wait as long as a client may take to connect. So the agent itself
// watches for SYNs and resets.

// These are flags of the TCP header.
const (
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// resetWatch is a packet socket that receives the SYNs and resets of one address family.
type resetWatch struct {
	socket *packetsocket.Socket
	v6     bool
}

const (
	// maxSegment is the number of bytes of a segment that the filters pass.
	maxSegment = 80
	// segmentBatch is the maximum number of segments that are read with one system call.
	segmentBatch = 16
)

// watchResets opens a packet socket for one address family. It requires CAP_NET_RAW.
func watchResets(v6 bool) (*resetWatch, error) {
	protocol, filter := uint16(unix.ETH_P_IP), filterIPv4
	if v6 {
		protocol, filter = unix.ETH_P_IPV6, filterIPv6
	}
	socket, err := packetsocket.Open(nil, packetsocket.Options{Filter: filter, Protocol: protocol, NetworkLayer: true, MaxFrame: maxSegment, Batch: segmentBatch})
	if err != nil {
		return nil, err
	}
	return &resetWatch{socket, v6}, nil
}

// filterIPv4 passes the first maxSegment bytes of TCP segments with SYN or RST, except for later
// fragments. The packets begin with their IP headers.
var filterIPv4 = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 9, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: 6},
	bpf.LoadAbsolute{Off: 6, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4},
	bpf.LoadMemShift{Off: 0},
	bpf.LoadIndirect{Off: 13, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: flagSYN | flagRST, SkipFalse: 1},
	bpf.RetConstant{Val: maxSegment},
	bpf.RetConstant{},
}

// filterIPv6 does the same as filterIPv4 for IPv6 packets without extension headers.
var filterIPv6 = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: 3},
	bpf.LoadAbsolute{Off: 40 + 13, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: flagSYN | flagRST, SkipFalse: 1},
	bpf.RetConstant{Val: maxSegment},
	bpf.RetConstant{},
}

// tcpHeader holds the fields of a SYN or a reset.
type tcpHeader struct {
	from, to netip.AddrPort
	seq      uint32
	flags    byte
}

// run calls f for each segment until the socket is closed. It never returns nil.
func (w *resetWatch) run(f func(tcpHeader)) error {
	for {
		segments, err := w.socket.ReceiveBatch(context.Background())
		if err != nil {
			return err
		}
		for _, s := range segments {
			if h, ok := parseTCPHeader(s.Data, w.v6); ok {
				f(h)
			}
		}
	}
}

// parseTCPHeader parses a packet that has passed the filter: it begins with its IP header and
// contains TCP. It returns false if the packet is too short.
func parseTCPHeader(b []byte, v6 bool) (tcpHeader, bool) {
	if len(b) < 20 {
		return tcpHeader{}, false
	}
	head, addrs, size := int(b[0]&0xf)*4, 12, 4
	if v6 {
		head, addrs, size = 40, 8, 16
	}
	if head < addrs+2*size || len(b) < head+14 {
		return tcpHeader{}, false
	}
	src, _ := netip.AddrFromSlice(b[addrs : addrs+size])
	dst, _ := netip.AddrFromSlice(b[addrs+size : addrs+2*size])
	tcp := b[head:]
	return tcpHeader{
		from: netip.AddrPortFrom(src, binary.BigEndian.Uint16(tcp)), to: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(tcp[2:])),
		seq: binary.BigEndian.Uint32(tcp[4:]), flags: tcp[13],
	}, true
}

// handleClientSegment handles a SYN or a reset that was received.
func (a *Agent) handleClientSegment(x tcpHeader) {
	a.mu.Lock()
	s := a.awaitingClient[x.to]
	a.mu.Unlock()
	if s == nil || x.from != s.req.Client {
		return
	}
	s.mu.Lock()
	if x.flags&(flagSYN|flagACK) == flagSYN {
		s.clientISN, s.clientSYN = x.seq, true
	}
	// A reset with another number does not answer the agent's SYN-ACK (RFC 5961).
	gone := x.flags&flagRST != 0 && s.clientSYN && x.seq == s.clientISN+1 && s.end == nil
	s.mu.Unlock()
	if gone {
		s.finish(agentapi.ReasonClientReset, "the client gave up before it was connected", wire.CauseEndHost)
	}
}

// watchClient makes handleClientSegment pass the segments of a session's client to the session,
// until the session is forgotten.
func (a *Agent) watchClient(s *session, port uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sessions[s.req.ID] == s {
		a.awaitingClient[netip.AddrPortFrom(s.own, port)] = s
	}
}

// serveResets reads a packet socket until the agent closes.
func (a *Agent) serveResets(w *resetWatch) {
	err := w.run(a.handleClientSegment)
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	if !closed {
		a.log.Warn("clients that give up during set-up are noticed late", "error", err)
	}
}
