package hostagent

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/genl"
)

// Connection is the kernel's report about an MPTCP connection of this host.
type Connection struct {
	// Token is the token that this host has chosen; it identifies the connection here.
	Token         uint32
	Local, Remote netip.AddrPort // the ends of its first subflow
	// Carried is the number of bytes that the connection has sent and received so far. If Counted
	// is false, the count started at an arbitrary number.
	Carried uint64
	Counted bool
	// Fallback reports whether the connection has fallen back to plain TCP, and so never has
	// further subflows.
	Fallback bool
}

// Constants of linux/inet_diag.h, linux/sock_diag.h and linux/mptcp.h.
const (
	sockDiagByFamily  = 20
	diagRequestLen    = 56
	diagMessageLen    = 72
	diagInfo          = 2
	diagProtocol      = 3
	protoMPTCP        = 262
	stateEstablished  = 1
	flagFallback      = 1
	infoToken         = 12
	infoSndUna        = 24
	infoRcvNxt        = 32
	infoLen           = 40 // of the oldest kernels
	infoBytesReceived = 64
	infoBytesAcked    = 72
	infoLenBytes      = 80 // of kernels that count bytes, from 6.5 on
)

// diagRequest asks for all established sockets of one address family, or for the one between two
// endpoints.
type diagRequest struct {
	family        uint8
	local, remote netip.AddrPort
}

// Len implements nl.NetlinkRequestData.
func (diagRequest) Len() int { return diagRequestLen }

// Serialize implements nl.NetlinkRequestData.
func (r diagRequest) Serialize() []byte {
	b := make([]byte, diagRequestLen)
	b[0], b[1], b[2] = r.family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	binary.NativeEndian.PutUint32(b[4:], 1<<stateEstablished)
	binary.BigEndian.PutUint16(b[8:], r.local.Port())
	binary.BigEndian.PutUint16(b[10:], r.remote.Port())
	copy(b[12:28], r.local.Addr().AsSlice())
	copy(b[28:44], r.remote.Addr().AsSlice())
	for i := 48; i < diagRequestLen; i++ {
		b[i] = 0xff // any cookie
	}
	return b
}

// Connections returns the established MPTCP connections of this network namespace.
func Connections() (all []Connection, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
		req.AddData(diagRequest{family: family})
		req.AddData(nl.NewRtAttr(diagProtocol, nl.Uint32Attr(protoMPTCP)))
		messages, err := req.Execute(unix.NETLINK_SOCK_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("asking the kernel for MPTCP connections (sock_diag, mptcp_diag): %w", err)
		}
		for _, m := range messages {
			if c, ok := parseConnection(m); ok {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// parseConnection parses a message of sock_diag. It returns false if the message describes
// no complete connection.
func parseConnection(b []byte) (c Connection, ok bool) {
	if len(b) < diagMessageLen {
		return c, false
	}
	c.Local, ok = endpoint(b[0], b[8:], b[4:])
	if !ok {
		return c, false
	}
	if c.Remote, ok = endpoint(b[0], b[24:], b[6:]); !ok {
		return c, false
	}
	for kind, v := range genl.Attributes(b[diagMessageLen:]) {
		if kind == diagInfo && len(v) >= infoLen {
			c.parseInfo(v)
			return c, true
		}
	}
	return c, false
}

// endpoint parses an address of the given family, and a port.
func endpoint(family uint8, addr, port []byte) (netip.AddrPort, bool) {
	var a netip.Addr
	switch family {
	case unix.AF_INET:
		a = netip.AddrFrom4([4]byte(addr))
	case unix.AF_INET6:
		a = netip.AddrFrom16([16]byte(addr)).Unmap()
	default:
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), true
}

// parseInfo parses a struct mptcp_info. Kernels that do not count bytes report sequence numbers,
// which start at an arbitrary number. Only their differences are numbers of bytes.
func (c *Connection) parseInfo(b []byte) {
	c.Fallback = binary.NativeEndian.Uint32(b[8:])&flagFallback != 0
	c.Token = binary.NativeEndian.Uint32(b[infoToken:])
	received, acked := infoRcvNxt, infoSndUna
	if c.Counted = len(b) >= infoLenBytes; c.Counted {
		received, acked = infoBytesReceived, infoBytesAcked
	}
	c.Carried = binary.NativeEndian.Uint64(b[received:]) + binary.NativeEndian.Uint64(b[acked:])
}

// These are offsets in a struct tcp_info of linux/tcp.h.
const (
	tcpBytesAcked    = 120
	tcpBytesReceived = 128
	tcpLen           = 136
)

// Carried returns the number of bytes that a TCP connection of this network namespace has sent and
// received.
func Carried(local, remote netip.AddrPort) (uint64, error) {
	family := uint8(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(sockDiagByFamily, 0)
	req.AddData(diagRequest{family, local, remote})
	messages, err := req.Execute(unix.NETLINK_SOCK_DIAG, 0)
	if err != nil {
		return 0, fmt.Errorf("asking the kernel for the connection from %v to %v: %w", local, remote, err)
	}
	for _, m := range messages {
		if n, ok := parseCarried(m); ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the kernel does not say what the connection from %v to %v has carried", local, remote)
}

// parseCarried parses a message of sock_diag about a TCP connection, and returns the number of
// bytes that the connection has carried. It returns false if the message lacks it.
func parseCarried(b []byte) (uint64, bool) {
	if len(b) < diagMessageLen {
		return 0, false
	}
	for kind, v := range genl.Attributes(b[diagMessageLen:]) {
		if kind == diagInfo && len(v) >= tcpLen {
			return binary.NativeEndian.Uint64(v[tcpBytesAcked:]) + binary.NativeEndian.Uint64(v[tcpBytesReceived:]), true
		}
	}
	return 0, false
}
