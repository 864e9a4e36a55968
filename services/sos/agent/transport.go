package agent

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Transport makes the connections between two agents. The framing and the session logic do not
// depend on the transport: they need several ordered reliable byte streams.
//
// Payload is spliced on a connection that implements syscall.Conn, and copied on any other, such as
// one under TLS. The one transport is TCP: the section "Why TCP" of docs/topics/sos.md has the
// measurements of QUIC and of Multipath TCP.
type Transport interface {
	// Name returns the name by which sessions select the transport.
	Name() string
	// Listen opens a data port.
	Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	// Dial connects to a peer's data port.
	Dial(ctx context.Context, from netip.Addr, to netip.AddrPort, congestion string, dscp uint8) (net.Conn, error)
	// Steer changes the congestion control of a connection in use.
	Steer(c net.Conn, congestion string) error
	// Tune prepares a connection, fresh or from the pool, for a session.
	Tune(c net.Conn, congestion string) error
	// Mark sets the DSCP of packets that a connection sends from now on.
	Mark(c net.Conn, dscp uint8) error
	// Pace bounds the rate of a connection, in bytes of payload a second; infinity removes the
	// bound.
	Pace(c net.Conn, rate float64) error
	// Backlog bounds the unsent bytes that a connection holds.
	Backlog(c net.Conn, bytes int) error
	// Stats returns figures of a connection and its path.
	Stats(c net.Conn) (ConnStats, error)
	// CongestionControls returns the names that Dial and Tune accept; empty if they accept none.
	CongestionControls() []string
}

// ConnStats holds a transport's figures of one connection.
type ConnStats struct {
	RTT         time.Duration
	MinRTT      time.Duration
	Sent        uint64 // segments sent
	Retransmits uint64 // segments retransmitted
	Rate        uint64 // bytes a second that were delivered lately
	Delivered   uint32 // segments that the peer's kernel has received, in order or not; wraps
	DataSent    uint32 // segments with payload sent; wraps
	BytesSent   uint64 // payload bytes sent, including retransmissions
	Unsent      int    // bytes that wait to be sent
	Segment     int    // payload bytes of a full segment
}

// tcpTransport implements Transport by parallel TCP connections.
type tcpTransport struct {
	buffer int // bytes in each direction
	lowat  int
	force  bool   // whether the process may exceed the kernel's limits
	start  string // congestion control until Tune
}

var _ Transport = (*tcpTransport)(nil)

// Name implements Transport.
func (t *tcpTransport) Name() string { return "tcp" }

// Listen implements Transport.
func (t *tcpTransport) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: t.control(t.start, 0)}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, fmt.Errorf("data port %v: %w", addr, err)
	}
	return ln, nil
}

// Dial implements Transport.
func (t *tcpTransport) Dial(ctx context.Context, from netip.Addr, to netip.AddrPort, congestion string, dscp uint8) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1, Control: t.control(cmp.Or(congestion, t.start), dscp)}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("connect to agent %v: %w", to, err)
	}
	return c, nil
}

// control sets the options that must be set before the handshake: the buffers, which determine the
// window scale, and the DSCP, which the segments of the handshake have as well.
func (t *tcpTransport) control(congestion string, dscp uint8) func(string, string, syscall.RawConn) error {
	return controlFunc(func(fd int) error {
		if err := setBuffers(fd, t.buffer, t.force); err != nil {
			return err
		}
		if err := setDSCP(fd, dscp); err != nil {
			return err
		}
		return setCongestion(fd, congestion)
	})
}

// controlFunc returns f in the form of net.Dialer.Control.
func controlFunc(f func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, rc syscall.RawConn) error { return onRaw(rc, f) }
}

// Steer implements Transport.
func (t *tcpTransport) Steer(c net.Conn, congestion string) error {
	return onSocket(c, func(fd int) error { return setCongestion(fd, congestion) })
}

// Tune implements Transport.
func (t *tcpTransport) Tune(c net.Conn, congestion string) error {
	return onSocket(c, func(fd int) error {
		if err := setCongestion(fd, congestion); err != nil {
			return err
		}
		return setDataOptions(fd, t.lowat)
	})
}

// Mark implements Transport.
func (t *tcpTransport) Mark(c net.Conn, dscp uint8) error {
	return onSocket(c, func(fd int) error { return setDSCP(fd, dscp) })
}

// Backlog implements Transport.
func (t *tcpTransport) Backlog(c net.Conn, bytes int) error {
	return onSocket(c, func(fd int) error {
		return setInts(fd, []intOption{{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes}})
	})
}

// Pace implements Transport.
func (t *tcpTransport) Pace(c net.Conn, rate float64) error {
	value := uint64(math.MaxUint64)
	if rate < math.MaxInt64 {
		value = uint64(max(rate, 1))
	}
	return onSocket(c, func(fd int) error {
		if err := unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, value); err != nil {
			return fmt.Errorf("pace of %.0f bytes a second: %w", rate, err)
		}
		return nil
	})
}

// Stats implements Transport.
func (t *tcpTransport) Stats(c net.Conn) (ConnStats, error) {
	var s ConnStats
	err := onSocket(c, func(fd int) (err error) {
		s, err = tcpStats(fd)
		return err
	})
	return s, err
}

// CongestionControls implements Transport.
func (t *tcpTransport) CongestionControls() []string { return congestionControls() }

// onSocket runs f on the socket of c, which may be wrapped by TLS.
func onSocket(c net.Conn, f func(fd int) error) error {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = w.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("connection to %v has no socket", c.RemoteAddr())
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return onRaw(rc, f)
}

// onRaw runs f on the descriptor of a socket.
func onRaw(rc syscall.RawConn, f func(fd int) error) error {
	var err error
	if cerr := rc.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// transports lists the transports of an agent.
type transports []Transport

func (ts transports) names() []string {
	out := make([]string, 0, len(ts))
	for _, t := range ts {
		out = append(out, t.Name())
	}
	return out
}

func (ts transports) byName(name string) (Transport, bool) {
	i := slices.IndexFunc(ts, func(t Transport) bool { return t.Name() == name })
	if i < 0 {
		return nil, false
	}
	return ts[i], true
}
