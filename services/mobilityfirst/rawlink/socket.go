package rawlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// batch is the maximum number of frames of one system call.
	batch = 64
	// headerSize is the size of an Ethernet header, and tagSize that of a VLAN tag.
	headerSize, tagSize = 14, 4
	// receiveBuffer is the size of the socket's receive buffer, in which frames wait while the
	// program does not run.
	receiveBuffer = 4 << 20
)

// Frame is a received frame.
type Frame struct {
	From openflow.MAC
	// Label is its VLAN tag, zero for none.
	Label uint16
	// Payload is the content behind the Ethernet header. It is valid until the next Receive.
	Payload []byte
}

// Socket sends and receives frames on one interface. Send and Receive may be called concurrently
// with each other, each by one goroutine.
type Socket struct {
	// MAC and MTU are the interface's values when the socket was opened.
	MAC openflow.MAC
	MTU int

	file     *os.File
	conn     syscall.RawConn
	out, in  vector
	received [batch]Frame
	dropped  uint64
}

// Open opens a socket on an interface that is up.
func Open(ifi *net.Interface) (*Socket, error) {
	if len(ifi.HardwareAddr) != len(openflow.MAC{}) {
		return nil, fmt.Errorf("interface %s has no Ethernet address", ifi.Name)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket (it needs CAP_NET_RAW): %w", err)
	}
	if err := prepare(fd, ifi.Index); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket on %s: %w", ifi.Name, err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "packet socket on "+ifi.Name)
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket on %s: %w", ifi.Name, err), file.Close())
	}
	s := &Socket{MAC: openflow.MAC(ifi.HardwareAddr), MTU: ifi.MTU, file: file, conn: conn}
	for i := range s.in.buffers {
		s.in.buffers[i] = make([]byte, ifi.MTU+headerSize+tagSize)
		s.in.vectors[i].Base = &s.in.buffers[i][0]
		s.in.vectors[i].SetLen(len(s.in.buffers[i]))
	}
	return s, nil
}

// packetType is the offset at which a filter finds the kind of a frame's destination (SKF_AD_OFF +
// SKF_AD_PKTTYPE of the kernel).
const packetType = 0xfffff000 + 4

// filter accepts frames with MobilityFirst's EtherType, from which the kernel has removed tags,
// except for those to other stations, which arrive if the interface is promiscuous.
var filter = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: headerSize - 2},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: frame.EtherType, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: packetType},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OTHERHOST, Jt: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// prepare sets a socket's options. The socket receives nothing before it is bound. It is bound to
// all protocols, because a socket of one protocol receives frames only after the kernel has
// discarded the tags of VLANs without an interface.
func prepare(fd, ifindex int) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	for _, option := range []int{unix.PACKET_IGNORE_OUTGOING, unix.PACKET_AUXDATA, unix.PACKET_QDISC_BYPASS} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			return fmt.Errorf("option %d: %w", option, err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); err != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fmt.Errorf("receive buffer: %w", err)
		}
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifindex})
}

// Close closes the socket; waiting calls return.
func (s *Socket) Close() error { return s.file.Close() }

// vector contains the arguments of a system call for several frames.
type vector struct {
	messages [batch]message
	vectors  [batch]unix.Iovec
	buffers  [batch][]byte
	control  [batch][controlSize]byte
}

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	size   uint32
}

// controlSize is the size of the control message with struct tpacket_auxdata.
const controlSize = 48

// call makes a system call for the first n frames, and returns the number of frames that it has
// handled. The call never blocks, so the runtime need not prepare another thread meanwhile.
func (v *vector) call(fd, number uintptr, n int) (int, error) {
	for {
		done, _, err := unix.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&v.messages[0])), uintptr(n), 0, 0, 0)
		switch err {
		case 0:
			return int(done), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

// AppendHeader appends an Ethernet header to b, with a VLAN tag if there is a label (1 to 4094).
func (s *Socket) AppendHeader(b []byte, to openflow.MAC, label uint16) []byte {
	b = append(append(b, to[:]...), s.MAC[:]...)
	if label != 0 {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, unix.ETH_P_8021Q), label)
	}
	return binary.BigEndian.AppendUint16(b, frame.EtherType)
}

// Send sends frames, each with its Ethernet header, in order. It stops at the first that cannot be
// sent: with unix.EMSGSIZE if the frame is larger than the MTU allows, and with unix.ENOBUFS if the
// interface has had no room for about ten milliseconds.
func (s *Socket) Send(frames [][]byte) error {
	for len(frames) > 0 {
		n := min(len(frames), batch)
		for i, f := range frames[:n] {
			s.out.vectors[i].Base = &f[0]
			s.out.vectors[i].SetLen(len(f))
			s.out.messages[i].header = unix.Msghdr{Iov: &s.out.vectors[i], Iovlen: 1}
		}
		done, err := s.wait(s.conn.Write, unix.SYS_SENDMMSG, &s.out, n)
		if err != nil {
			return fmt.Errorf("send frames: %w", err)
		}
		frames = frames[done:]
	}
	return nil
}

// Retries when the interface's queue is full. They poll, because nothing signals that there is room
// again.
const (
	maxFullRetries = 200
	fullPause      = 50 * time.Microsecond
)

// wait makes a system call when the socket is ready for it.
func (s *Socket) wait(ready func(func(uintptr) bool) error, number uintptr, v *vector, n int) (done int, err error) {
	for tries := 1; ; tries++ {
		ioErr := ready(func(fd uintptr) bool {
			done, err = v.call(fd, number, n)
			return err != unix.EAGAIN
		})
		if ioErr != nil {
			return 0, ioErr
		}
		if err != unix.ENOBUFS || tries == maxFullRetries {
			return done, err
		}
		time.Sleep(fullPause)
	}
}

// Receive waits for frames and returns those that have arrived, up to 64. They are valid until the
// next call. It ends with the error of ctx, or when the socket is closed.
func (s *Socket) Receive(ctx context.Context) ([]Frame, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	release := tasks.InterruptReads(ctx, s.file)
	for i := range s.in.messages {
		s.in.messages[i].header = unix.Msghdr{Iov: &s.in.vectors[i], Iovlen: 1, Control: &s.in.control[i][0]}
		s.in.messages[i].header.SetControllen(controlSize)
	}
	n, err := s.wait(s.conn.Read, unix.SYS_RECVMMSG, &s.in, batch)
	release()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("receive frames: %w", err)
	}
	all := s.received[:0]
	for i := range n {
		m := &s.in.messages[i]
		if m.header.Flags&unix.MSG_TRUNC != 0 || m.size < headerSize {
			s.dropped++
			continue
		}
		data := s.in.buffers[i][:m.size]
		all = append(all, Frame{openflow.MAC(data[6:12]), label(s.in.control[i][:m.header.Controllen]), data[headerSize:]})
	}
	return all, nil
}

// Dropped returns the number of dropped frames that were larger than the interface's MTU allows. It
// may be called by the goroutine that calls Receive.
func (s *Socket) Dropped() uint64 { return s.dropped }

// label returns the VLAN tag, which the kernel has removed from the frame, from the control message
// (struct tpacket_auxdata), the only one that the socket requests.
func label(control []byte) uint16 {
	const status, tag = unix.SizeofCmsghdr, unix.SizeofCmsghdr + 16
	if len(control) < tag+2 || binary.NativeEndian.Uint32(control[status:])&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0
	}
	return binary.NativeEndian.Uint16(control[tag:]) & 0xfff
}
