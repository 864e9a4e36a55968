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
	// MTU is how many bytes a datagram carries on every way: with headers of IPv4 and UDP it is 1260 bytes, and passes usual tunnels.
	MTU = 1232
	// MaxMTU is how many a datagram carries at most: with these headers it is 9000 bytes, as large Ethernet frames carry.
	MaxMTU = 9000 - ipHeaders
	// ipHeaders is the size of the headers of IPv4 and UDP.
	ipHeaders = 28
	// batch is how many datagrams, or runs of them, one system call takes at most.
	batch = 64
	// buffer is asked for, so that datagrams wait while the program does not run.
	buffer = 4 << 20
	// headerSize is that of what AppendHeader appends.
	headerSize = len(openflow.MAC{})
)

// ErrAddress is for what is not an IPv4 address with an even port; errors wrap it.
var ErrAddress = errors.New("want an IPv4 address and an even port")

// MAC is the Ethernet address that stands for a host's address. The error wraps ErrAddress.
func MAC(at netip.AddrPort) (m openflow.MAC, err error) {
	ip := at.Addr().Unmap()
	if !ip.Is4() || ip.IsUnspecified() || ip.As4()[0] >= 224 || at.Port() == 0 || at.Port()%2 != 0 {
		return m, fmt.Errorf("address %v: %w", at, ErrAddress)
	}
	binary.LittleEndian.PutUint16(m[:], at.Port())
	*(*[4]byte)(m[2:]) = ip.As4()
	return m, nil
}

// Addr is the address for which an Ethernet address stands.
func Addr(m openflow.MAC) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[2:])), binary.LittleEndian.Uint16(m[:]))
}

// Socket sends and receives at one address. Send and Receive may be called at the same time, each by one goroutine.
type Socket struct {
	// MTU is how many bytes a datagram carries over the interface that has the address, MaxMTU at most. What is larger
	// is lost: no datagram is cut up on its way.
	MTU int

	conn *net.UDPConn
	all  *ipv4.PacketConn

	in       [batch]ipv4.Message
	received []rawlink.Frame
	out      [batch]ipv4.Message
	sizes    [batch][sizeControl]byte
	runs     bool // the kernel cuts runs into datagrams
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
	s := &Socket{MTU: carried(at.Addr()), conn: conn, all: ipv4.NewPacketConn(conn)}
	joins, err := s.prepare()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("UDP at %v: %w", at, err), conn.Close())
	}
	size := s.MTU + 1
	if joins {
		size = maxRun
	}
	for i := range s.in {
		s.in[i].Buffers, s.in[i].OOB = [][]byte{make([]byte, size)}, make([]byte, sizeControl)
	}
	return s, nil
}

// carried is how many bytes a datagram carries over the interface that has an address of this machine.
func carried(at netip.Addr) int {
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

// prepare sets the socket's options, and says whether the kernel joins datagrams that arrive. What routers, or others in
// their names, say of ways is not listened to (IP_PMTUDISC_PROBE): what does not arrive tells.
func (s *Socket) prepare() (joins bool, err error) {
	_ = errors.Join(s.conn.SetReadBuffer(buffer), s.conn.SetWriteBuffer(buffer)) // as much as may be
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return false, err
	}
	controlled := raw.Control(func(f uintptr) {
		fd := int(f)
		_ = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer)) // which is for who administers the network
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		_, without := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.runs = without == nil
		joins = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	})
	return joins, errors.Join(controlled, err)
}

// Close has Receive end.
func (s *Socket) Close() error { return s.conn.Close() }

// AppendHeader says to which host a frame goes that is appended behind it. There are no labels.
func (s *Socket) AppendHeader(b []byte, to openflow.MAC, _ uint16) []byte { return append(b, to[:]...) }

// Send sends frames, each with what AppendHeader has appended before it. Those that do not get out are lost, as on
// any link: so are those to everybody. The error is that the socket is closed.
func (s *Socket) Send(frames [][]byte) error {
	for some := range slices.Chunk(frames, batch) {
		for ms := s.join(some); len(ms) > 0; {
			sent, err := s.all.WriteBatch(ms, 0)
			none, refused := errors.Is(err, unix.EIO), errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
			switch {
			case errors.Is(err, net.ErrClosed):
				return err
			case (none || refused) && len(ms[0].Buffers) > 1:
				s.runs = s.runs && !none // the interface can't
				ms = apart(ms)
			default:
				ms = ms[max(sent, 1):] // the first of them can't be sent, if none was
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
		case err != nil: // what an earlier datagram has met on its way, as that nobody is there
			if tasks.Sleep(ctx, time.Millisecond) != nil {
				return nil, ctx.Err()
			}
			continue
		}
		s.received = s.received[:0]
		for i := range s.in[:n] {
			s.split(&s.in[i])
		}
		if len(s.received) > 0 {
			return s.received, nil
		}
	}
}
