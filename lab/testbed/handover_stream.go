package testbed

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StreamOptions describes a stream of UDP packets between two hosts.
type StreamOptions struct {
	// Sender and Receiver are the hosts at which the sockets are opened. If Receiver is nil, no
	// socket is opened there, and the caller passes the packets to Deliver.
	Sender, Receiver Inside
	From             netip.AddrPort // address of the sender; the zero value lets the kernel choose
	To               netip.AddrPort // address of the receiver; port 0 means a free one
	Dial             netip.AddrPort // address to which the sender sends, if that is not the receiver's
	Rate             int            // packets a second; 0 means 1,000
	Size             int            // bytes of payload, at least 16; 0 means 200
}

// Stream is a running stream of numbered UDP packets.
type Stream struct {
	*deliveries
	id         uint64
	size       int
	interval   time.Duration
	send, recv *net.UDPConn
	stop       context.CancelFunc
	running    sync.WaitGroup
}

const (
	streamHeader = 16 // bytes of the stream's ID and the packet's number
	streamBuffer = 4 << 20
	// streamBurst is the largest number of packets for which a late sender makes up.
	streamBurst = 20
	// Settle is how long Stop waits for packets in flight after the latest arrival.
	Settle = time.Second
)

// StartStream opens both sockets and starts sending.
func StartStream(ctx context.Context, o StreamOptions) (*Stream, error) {
	if o.Rate == 0 {
		o.Rate = 1000
	}
	if o.Size == 0 {
		o.Size = 200
	}
	if o.Rate < 1 || o.Rate > 100_000 || o.Size < streamHeader || o.Size > 60_000 {
		return nil, fmt.Errorf("stream of %d packets a second with %d bytes: not between 1 and 100000, or not between %d and 60000", o.Rate, o.Size, streamHeader)
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	s := &Stream{deliveries: newDeliveries(), id: binary.BigEndian.Uint64(id[:]), size: o.Size, interval: time.Second / time.Duration(o.Rate)}
	if err := s.open(o); err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	if s.recv != nil {
		s.running.Add(1)
		go func() { defer s.running.Done(); s.receive() }()
	}
	s.running.Add(1)
	go func() { defer s.running.Done(); s.sendUntil(ctx) }()
	return s, nil
}

func (s *Stream) open(o StreamOptions) error {
	to := o.To
	if o.Receiver != nil {
		if err := s.openReceiver(o); err != nil {
			return fmt.Errorf("stream: listen at %v: %w", o.To, err)
		}
		to = netip.AddrPortFrom(o.To.Addr(), uint16(s.recv.LocalAddr().(*net.UDPAddr).Port))
	}
	if o.Dial.IsValid() {
		to = o.Dial
	}
	err := o.Sender.Do(func() (err error) {
		var from *net.UDPAddr
		if o.From.IsValid() {
			from = net.UDPAddrFromAddrPort(o.From)
		}
		s.send, err = net.DialUDP("udp", from, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err == nil {
		err = control(s.send, unix.SO_SNDBUFFORCE, streamBuffer)
	}
	if err != nil {
		s.close()
		return fmt.Errorf("stream to %v: %w", to, err)
	}
	return nil
}

func (s *Stream) openReceiver(o StreamOptions) error {
	err := o.Receiver.Do(func() (err error) {
		s.recv, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(o.To))
		return err
	})
	if err != nil {
		return err
	}
	err = errors.Join(control(s.recv, unix.SO_TIMESTAMPNS, 1), control(s.recv, unix.SO_RCVBUFFORCE, streamBuffer))
	if err != nil {
		s.close()
	}
	return err
}

func (s *Stream) close() {
	if s.send != nil {
		s.send.Close()
	}
	if s.recv != nil {
		s.recv.Close()
	}
}

// control sets an option of the socket layer. Buffers larger than the system allows need root;
// without it they keep their size.
func control(c *net.UDPConn, option, value int) error {
	if err := setOption(c, unix.SOL_SOCKET, option, value); !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// setOption sets an option of a socket.
func setOption(c syscall.Conn, level, option, value int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, failed)
}

// sendUntil sends at the stream's rate until the context ends.
func (s *Stream) sendUntil(ctx context.Context) {
	packet := make([]byte, s.size)
	binary.BigEndian.PutUint64(packet, s.id)
	p := newPace(s.interval)
	defer p.stop()
	for p.wait(ctx) {
		number, ok := s.next(time.Now().UnixNano())
		if !ok {
			return
		}
		binary.BigEndian.PutUint64(packet[8:], uint64(number))
		if _, err := s.send.Write(packet); err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.refuse() // There is no route, or this is an ICMP error for an earlier packet: the next one may succeed.
		}
	}
}

func (s *Stream) receive() {
	packet, oob := make([]byte, 65536), make([]byte, 128)
	for {
		n, oobn, _, _, err := s.recv.ReadMsgUDPAddrPort(packet, oob)
		if err != nil {
			return // Stop has set the deadline, or the socket is closed.
		}
		s.Deliver(packet[:n], time.Unix(0, stamp(oob[:oobn])))
	}
}

// Deliver records a packet's arrival. It ignores packets of other streams.
func (s *Stream) Deliver(payload []byte, at time.Time) {
	if len(payload) < streamHeader || binary.BigEndian.Uint64(payload) != s.id {
		return
	}
	s.arrived(int(binary.BigEndian.Uint64(payload[8:])), at.UnixNano())
}

// stamp returns the time at which the kernel received the packet, or the present time if the kernel
// has not reported it.
func stamp(oob []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Now().UnixNano()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			sec, nsec := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			return int64(sec)*1e9 + int64(nsec)
		}
	}
	return time.Now().UnixNano()
}

// Count returns the number of packets that were sent, and of those that have arrived so far.
func (s *Stream) Count() (sent, received int) { return s.count() }

// LastArrival returns the time of the last arrival, or the zero time if none has arrived.
func (s *Stream) LastArrival() time.Time { return s.lastArrival() }

// Snapshot returns the record so far. Packets in flight count as lost.
func (s *Stream) Snapshot() *StreamLog { return s.finish() }

// Stop stops sending, waits for packets in flight, and returns the record.
func (s *Stream) Stop() *StreamLog {
	s.stop()
	waitAll(s.deliveries)
	s.close()
	s.running.Wait()
	return s.finish()
}

// waitAll waits until every message has arrived, or nothing has arrived for Settle.
func waitAll(d *deliveries) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	quiet, before := time.Now(), -1
	for range tick.C {
		sent, received := d.count()
		if received != before {
			quiet, before = time.Now(), received
		}
		if received >= sent || time.Since(quiet) > Settle {
			return
		}
	}
}
