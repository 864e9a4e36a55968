package udplink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

const (
	// MTU is the datagram size in bytes that passes on every path: with the headers of IPv4 and UDP
	// it is 1260 bytes, and fits into the usual tunnels.
	MTU = 1232
	// MaxMTU is the maximum datagram size in bytes: with these headers it is 9000 bytes, the size
	// of large Ethernet frames.
	MaxMTU = 9000 - ipHeaders
	// ipHeaders is the size of the headers of IPv4 and UDP.
	ipHeaders = 28
	// batch is the maximum number of datagrams, or runs of them, in one system call.
	batch = 64
	// bufferSize is the size of the socket buffers, in which datagrams wait while the program does
	// not run.
	bufferSize = 4 << 20
	// headerSize is the size of what AppendHeader appends.
	headerSize = len(openflow.MAC{})
)

// ErrAddress means that an address is not an IPv4 address with an even port; errors wrap it.
var ErrAddress = errors.New("want an IPv4 address and an even port")

// MAC returns the Ethernet address that represents a host's address. The error wraps ErrAddress.
func MAC(at netip.AddrPort) (m openflow.MAC, err error) {
	ip := at.Addr().Unmap()
	if !ip.Is4() || ip.IsUnspecified() || ip.As4()[0] >= 224 || at.Port() == 0 || at.Port()%2 != 0 {
		return m, fmt.Errorf("address %v: %w", at, ErrAddress)
	}
	binary.LittleEndian.PutUint16(m[:], at.Port())
	*(*[4]byte)(m[2:]) = ip.As4()
	return m, nil
}

// Addr returns the address that an Ethernet address represents.
func Addr(m openflow.MAC) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[2:])), binary.LittleEndian.Uint16(m[:]))
}

// Socket sends and receives frames at one address. Send and Receive may be called concurrently with
// each other, each by one goroutine.
type Socket struct {
	// MTU is the datagram size in bytes that the interface with the address carries, at most
	// MaxMTU. Larger datagrams are lost, because none is fragmented.
	MTU int

	conn *net.UDPConn
	all  *ipv4.PacketConn

	in       [batch]ipv4.Message
	received []rawlink.Frame
	out      [batch]ipv4.Message
	sizes    [batch][sizeControl]byte
	segments bool // the kernel supports UDP_SEGMENT
}

// Open opens a socket at an address of this machine. The error may wrap ErrAddress.
func Open(at netip.AddrPort) (*Socket, error) {
	if _, err := MAC(at); err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("UDP at %v: %w", at, err)
	}
	s := &Socket{MTU: interfaceMTU(at.Addr()), conn: conn, all: ipv4.NewPacketConn(conn)}
	joins, err := s.prepare()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("UDP at %v: %w", at, err), conn.Close())
	}
	size := s.MTU + 1
	if joins {
		size = maxRunSize
	}
	for i := range s.in {
		s.in[i].Buffers, s.in[i].OOB = [][]byte{make([]byte, size)}, make([]byte, sizeControl)
	}
	return s, nil
}

// interfaceMTU returns the datagram size that the interface with an address of this machine
// carries.
func interfaceMTU(at netip.Addr) int {
	all, err := net.Interfaces()
	if err != nil {
		return MTU
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err == nil && (at.IsLoopback() && i.Flags&net.FlagLoopback != 0 || slices.ContainsFunc(addresses, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr() == at.Unmap()
		})) {
			return min(i.MTU-ipHeaders, MaxMTU)
		}
	}
	return MTU
}

// prepare sets the socket's options, and reports whether the kernel joins arriving datagrams. It
// ignores what routers, or forged messages in their name, report about path MTUs
// (IP_PMTUDISC_PROBE): hosts probe the path themselves.
func (s *Socket) prepare() (joins bool, err error) {
	_ = errors.Join(s.conn.SetReadBuffer(bufferSize), s.conn.SetWriteBuffer(bufferSize)) // as much as the system allows
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return false, err
	}
	controlled := raw.Control(func(f uintptr) {
		fd := int(f)
		_ = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bufferSize)) // requires CAP_NET_ADMIN
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		_, without := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.segments = without == nil
		joins = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	})
	return joins, errors.Join(controlled, err)
}

// Close closes the socket; Receive returns.
func (s *Socket) Close() error { return s.conn.Close() }

// AppendHeader appends the destination of a frame, which has to follow. There are no labels.
func (s *Socket) AppendHeader(b []byte, to openflow.MAC, _ uint16) []byte { return append(b, to[:]...) }

// Send sends frames, each behind what AppendHeader has appended. Frames that cannot be sent are
// lost, as on any link, and so are broadcast frames. Send returns an error only if the socket is
// closed.
func (s *Socket) Send(frames [][]byte) error {
	for some := range slices.Chunk(frames, batch) {
		for ms := s.joinFrames(some); len(ms) > 0; {
			sent, err := s.all.WriteBatch(ms, 0)
			none, refused := errors.Is(err, unix.EIO), errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
			switch {
			case errors.Is(err, net.ErrClosed):
				return err
			case (none || refused) && len(ms[0].Buffers) > 1:
				s.segments = s.segments && !none // the interface does not support segmentation
				ms = splitRuns(ms)
			default:
				ms = ms[max(sent, 1):] // if none was sent, the first cannot be
			}
		}
	}
	return nil
}

// Receive waits for frames. They are valid until the next Receive.
func (s *Socket) Receive(ctx context.Context) ([]rawlink.Frame, error) {
	release := tasks.InterruptReads(ctx, s.conn)
	defer release()
	for {
		n, err := s.all.ReadBatch(s.in[:], 0)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil: // an error that an earlier datagram has caused, such as an unreachable port
			if tasks.Sleep(ctx, time.Millisecond) != nil {
				return nil, ctx.Err()
			}
			continue
		}
		s.received = s.received[:0]
		for i := range s.in[:n] {
			s.splitMessage(&s.in[i])
		}
		if len(s.received) > 0 {
			return s.received, nil
		}
	}
}
