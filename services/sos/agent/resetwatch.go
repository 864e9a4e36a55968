package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// A client may give up while its session is being set up. Its kernel then answers the
// agent's SYN-ACK with a reset, and the agent's kernel drops the half-open connection
// without informing the listener. The server would be kept waiting for as long as a client
// may take to connect. So the agent watches the SYNs and resets itself.

// These are flags of the TCP header.
const (
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// resetWatch is a packet socket that receives the SYNs and resets of one address family.
type resetWatch struct {
	file *os.File
	v6   bool
}

// watchResets opens the socket. It needs CAP_NET_RAW.
func watchResets(v6 bool) (*resetWatch, error) {
	protocol, filter := uint16(unix.ETH_P_IP), filterIPv4
	if v6 {
		protocol, filter = unix.ETH_P_IPV6, filterIPv6
	}
	// Without a protocol, nothing is received until the filter is in place.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return &resetWatch{os.NewFile(uintptr(fd), "packet socket"), v6}, nil
}

// filterIPv4 passes the first 80 bytes of TCP segments with SYN or RST, except for later
// fragments; the packet begins with its IP header.
var filterIPv4 = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_TCP, Jf: 6},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 6},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x1fff, Jt: 4},
	{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 13},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: flagSYN | flagRST, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 80},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// filterIPv6 does the same for IPv6 without extension headers.
var filterIPv6 = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 6},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_TCP, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 40 + 13},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: flagSYN | flagRST, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 80},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// tcpHeader holds the fields of a SYN or a reset.
type tcpHeader struct {
	from, to netip.AddrPort
	seq      uint32
	flags    byte
}

// run calls f for each packet until the socket is closed; it never returns nil.
func (w *resetWatch) run(f func(tcpHeader)) error {
	rc, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var b [80]byte
	for {
		n, err := w.read(rc, b[:])
		if err != nil {
			return err
		}
		if s, ok := parseTCPHeader(b[:n], w.v6); ok {
			f(s)
		}
	}
}

func (w *resetWatch) read(rc syscall.RawConn, b []byte) (n int, err error) {
	rerr := rc.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b, 0)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// parseTCPHeader parses a packet that begins with its IP header and, according to the
// filter, holds TCP.
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
	// A reset with any other number is not the client's answer (RFC 5961).
	gone := x.flags&flagRST != 0 && s.clientSYN && x.seq == s.clientISN+1 && s.end == nil
	s.mu.Unlock()
	if gone {
		s.finish(agentapi.ReasonClientReset, "the client gave up before it was connected", wire.CauseEndHost)
	}
}

// watchClient delivers the segments of a session's client to the session, until the session
// is forgotten.
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
