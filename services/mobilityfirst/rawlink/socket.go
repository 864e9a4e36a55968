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
	// batch is how many frames one system call takes at most.
	batch = 64
	// headerSize is that of the Ethernet header, tagSize that of a VLAN tag.
	headerSize, tagSize = 14, 4
	// receiveBuffer is asked for so that frames wait while the program does not run.
	receiveBuffer = 4 << 20
)

// Frame is one that was received.
type Frame struct {
	From openflow.MAC
	// Label is its VLAN tag, zero for none.
	Label uint16
	// Payload is what stands behind the Ethernet header. It is valid until the next Receive.
	Payload []byte
}

// Socket sends and receives on one interface. Send and Receive may be called at the same time, each
// by one goroutine.
type Socket struct {
	// MAC and MTU are the interface's when the socket was opened.
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

// packetType is where a filter finds for whom a frame is (SKF_AD_OFF + SKF_AD_PKTTYPE of the kernel).
const packetType = 0xfffff000 + 4

// ours passes frames with our EtherType, of which tags have been taken out, but for those to other stations, which come where
// somebody has the interface hear all.
var ours = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: headerSize - 2},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: frame.EtherType, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: packetType},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OTHERHOST, Jt: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// prepare sets a socket's options. It hears nothing before it is bound. It is bound to all
// protocols: sockets of one get frames after the kernel has forgotten tags that no interface is for.
func prepare(fd, ifindex int) error {
	program := unix.SockFprog{Len: uint16(len(ours)), Filter: &ours[0]}
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

// Close closes the socket: who waits for it comes back.
func (s *Socket) Close() error { return s.file.Close() }

// vector is what a system call for several frames is given.
type vector struct {
	messages [batch]message
	vectors  [batch]unix.Iovec
	buffers  [batch][]byte
	control  [batch][controlSize]byte
}

// message is struct mmsghdr of the kernel.
type message struct {
	header unix.Msghdr
	size   uint32
}

// controlSize is room for struct tpacket_auxdata.
const controlSize = 48

// call makes a system call for the first n frames, and gives for how many it was made. The call never waits, so the
// runtime need not make another thread ready meanwhile.
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

// Send sends frames, each with its Ethernet header, in order. It fails at the first that can't be
// sent: with unix.EMSGSIZE if that is larger than the MTU allows, with unix.ENOBUFS if the interface
// takes no more for some ten milliseconds.
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

// An interface whose queue is full is tried again so often, and so much later: nothing tells when
// it takes more.
const (
	fullTries = 200
	fullPause = 50 * time.Microsecond
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
		if err != unix.ENOBUFS || tries == fullTries {
			return done, err
		}
		time.Sleep(fullPause)
	}
}

// Receive waits for frames, and gives those that are there, up to 64. They are valid until it is
// called again. It ends with the error of ctx, or when the socket is closed.
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

// Dropped is how many frames were larger than the interface's MTU allows. It may be called where
// Receive is.
func (s *Socket) Dropped() uint64 { return s.dropped }

// label reads the VLAN tag, which the kernel has taken out of the frame, from its notes (struct
// tpacket_auxdata), which are the only ones that are asked for.
func label(control []byte) uint16 {
	const status, tag = unix.SizeofCmsghdr, unix.SizeofCmsghdr + 16
	if len(control) < tag+2 || binary.NativeEndian.Uint32(control[status:])&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0
	}
	return binary.NativeEndian.Uint16(control[tag:]) & 0xfff
}
