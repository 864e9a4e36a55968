package packetsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Options configures a socket. The zero value receives every frame of up to 2,048 bytes that
// arrives at the interface, one with each system call.
type Options struct {
	// Filter selects the frames that the socket receives. It is in force before the first frame is
	// received. Without a filter the socket receives all frames.
	Filter []bpf.Instruction
	// Protocol is the EtherType of the frames that the socket receives. Zero means all types. Only
	// with zero, the socket also receives frames with the tags of VLANs that have no interface, and
	// frames that a program on a later hook of the kernel takes away.
	Protocol uint16
	// SendOnly makes a socket that receives nothing.
	SendOnly bool
	// NetworkLayer makes received frames begin with their network header, such as that of IP,
	// instead of the link's header. Such a socket cannot send.
	NetworkLayer bool
	// Outgoing makes the socket receive the frames that this machine sends, too, if Protocol is
	// zero.
	Outgoing bool
	// AllMulticast makes the interface accept frames to all multicast addresses. The kernel undoes
	// this setting when the socket is closed, even if the program is killed.
	AllMulticast bool
	// Batch is the maximum number of frames of one system call. Zero means 1.
	Batch int
	// MaxFrame is the maximum size of a received frame in bytes, without its VLAN tag. Larger frames
	// are dropped and counted. Zero means 2,048.
	MaxFrame int
	// Buffer is the size of the receive buffer in bytes, in which frames wait while the program does
	// not run. Zero means the system's default. The size can exceed net.core.rmem_max only with
	// CAP_NET_ADMIN. Without that capability, the system reduces the size.
	Buffer int
	// BypassQueue sends frames past the interface's queueing discipline. Sending then fails with
	// ENOBUFS when the driver's queue is full.
	BypassQueue bool
	// Timestamps sets Frame.Time.
	Timestamps bool
}

const (
	defaultBatch    = 1
	defaultMaxFrame = 2048
)

// Socket is a packet socket. Send may be called concurrently with all other methods. At any time,
// at most one goroutine may call SendBatch, and at most one may call Receive or ReceiveBatch.
type Socket struct {
	name     string // names the interface in errors
	file     *os.File
	conn     syscall.RawConn
	closed   atomic.Bool
	out, in  vector
	control  []byte
	buffers  []byte
	maxFrame int
	used     int // number of messages of in that the last call has filled
	received []Frame
	dropped  uint64
}

// Open opens a socket on an interface, or on all interfaces if ifi is nil. The error wraps ErrPrivilege
// if the program lacks CAP_NET_RAW.
func Open(ifi *net.Interface, o Options) (*Socket, error) {
	name, index := "all interfaces", 0
	if ifi != nil {
		name, index = "interface "+ifi.Name, ifi.Index
	}
	s, err := open(name, index, o)
	if err != nil {
		return nil, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	return s, nil
}

// ErrPrivilege means that the program may not open packet sockets.
var ErrPrivilege = errors.New("CAP_NET_RAW is missing")

func open(name string, index int, o Options) (*Socket, error) {
	kind := unix.SOCK_RAW
	if o.NetworkLayer {
		kind = unix.SOCK_DGRAM
	}
	// A socket of protocol 0 receives nothing until it is bound, which is after the filter has been
	// attached.
	fd, err := unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w: %w", ErrPrivilege, err)
	case err != nil:
		return nil, err
	}
	if err := configure(fd, index, o); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "packet socket on "+name)
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &Socket{name: name, file: file, conn: conn}
	s.allocate(o)
	return s, nil
}

// allocate allocates the arguments of the system calls.
func (s *Socket) allocate(o Options) {
	batch := max(o.Batch, defaultBatch)
	s.out = newVector(batch)
	if o.SendOnly {
		batch = 0
	}
	if s.maxFrame = o.MaxFrame; s.maxFrame == 0 {
		s.maxFrame = defaultMaxFrame
	}
	s.in = newVector(batch)
	s.buffers, s.control = make([]byte, batch*s.maxFrame), make([]byte, batch*controlSize)
	s.received = make([]Frame, batch)
	for i := range s.in.messages {
		s.in.set(i, s.buffer(i))
		s.in.messages[i].header.Control = &s.control[i*controlSize]
	}
	s.used = batch
}

func (s *Socket) buffer(i int) []byte { return s.buffers[i*s.maxFrame : (i+1)*s.maxFrame] }

// configure sets a socket's filter and options and binds it.
func configure(fd, index int, o Options) error {
	if err := attach(fd, o.Filter); err != nil {
		return err
	}
	for _, option := range []struct {
		name   string
		level  int
		option int
		wanted bool
	}{
		{"PACKET_IGNORE_OUTGOING", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, !o.Outgoing && !o.SendOnly && o.Protocol == 0},
		{"PACKET_AUXDATA", unix.SOL_PACKET, unix.PACKET_AUXDATA, !o.SendOnly},
		{"PACKET_QDISC_BYPASS", unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, o.BypassQueue},
		{"SO_TIMESTAMPNS", unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, o.Timestamps},
	} {
		if !option.wanted {
			continue
		}
		if err := unix.SetsockoptInt(fd, option.level, option.option, 1); err != nil {
			return fmt.Errorf("set %s: %w", option.name, err)
		}
	}
	if o.AllMulticast {
		all := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &all); err != nil {
			return fmt.Errorf("accept all multicast addresses: %w", err)
		}
	}
	if o.Buffer > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, o.Buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.Buffer); err != nil {
			return fmt.Errorf("set a receive buffer of %d bytes: %w", o.Buffer, err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: o.protocol(), Ifindex: index}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// protocol returns the protocol to bind to, in network byte order. A socket bound to protocol 0
// receives nothing.
func (o Options) protocol() uint16 {
	host := o.Protocol
	switch {
	case o.SendOnly:
		return 0
	case host == 0:
		host = unix.ETH_P_ALL
	}
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, host))
}

// attach attaches a filter to a socket.
func attach(fd int, filter []bpf.Instruction) error {
	if len(filter) == 0 {
		return nil
	}
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	if len(raw) > math.MaxUint16 {
		return fmt.Errorf("the filter has %d instructions, at most %d are possible", len(raw), math.MaxUint16)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("attach the filter: %w", err)
	}
	return nil
}

// Close closes the socket. Calls that wait, and later ones, return an error that wraps
// os.ErrClosed.
func (s *Socket) Close() error {
	s.closed.Store(true)
	return s.file.Close()
}

// failed returns the error of a call, as an error about this socket.
func (s *Socket) failed(what string, err error) error {
	if s.closed.Load() {
		err = os.ErrClosed // the error of the file does not wrap it
	}
	return fmt.Errorf("%s on %s: %w", what, s.name, err)
}
