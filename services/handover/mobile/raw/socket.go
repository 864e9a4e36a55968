package raw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Frame is a received frame.
type Frame struct {
	Data []byte
	// Unsummed reports whether the sender is on this machine and has left the transport's checksum
	// to a network card that the frame never passed.
	Unsummed bool
}

// Socket is a packet socket on one interface. Send may be called concurrently, Receive by one
// goroutine at a time.
type Socket struct {
	file *os.File
	conn rawConn
	buf  [maxFrame]byte
}

// rawConn is the part of syscall.RawConn that Socket uses.
type rawConn interface {
	Read(f func(fd uintptr) bool) error
	Write(f func(fd uintptr) bool) error
}

// maxFrame bounds a received frame.
const maxFrame = 2048

// Open opens a socket that receives the frames which come in by the interface and pass the filter.
func Open(ifindex int, filter Filter) (*Socket, error) {
	// With protocol 0 the socket receives nothing until the filter is in place.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket (it needs CAP_NET_RAW): %w", err)
	}
	if err := prepare(fd, ifindex, filter); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket on interface %d: %w", ifindex, err)
	}
	file := os.NewFile(uintptr(fd), "packet socket")
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return &Socket{file: file, conn: conn}, nil
}

// prepare sets the socket's filter and options and binds it.
func prepare(fd, ifindex int, filter Filter) error {
	if len(filter) > 0 {
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	for _, option := range []int{unix.PACKET_IGNORE_OUTGOING, unix.PACKET_AUXDATA} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			return fmt.Errorf("option %d: %w", option, err)
		}
	}
	// All protocols: sockets for one protocol receive frames only after the hooks by which a
	// datapath takes them away.
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: ifindex})
}

// networkOrder converts a number to network byte order.
func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Send sends a frame unchanged.
func (s *Socket) Send(frame []byte) error {
	var sendErr error
	err := s.conn.Write(func(fd uintptr) bool {
		_, sendErr = unix.Write(int(fd), frame)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err := errors.Join(err, sendErr); err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	return nil
}

// Receive waits for a frame. The caller owns its data.
func (s *Socket) Receive(ctx context.Context) (Frame, error) {
	if err := ctx.Err(); err != nil {
		return Frame{}, err
	}
	release := tasks.InterruptReads(ctx, s.file)
	f, err := s.receive()
	release()
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return Frame{}, ctx.Err()
	}
	return f, err
}

// receive reads one frame.
func (s *Socket) receive() (Frame, error) {
	var (
		n, oobn int
		recvErr error
		oob     [128]byte
	)
	err := s.conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), s.buf[:], oob[:], 0)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if err := errors.Join(err, recvErr); err != nil {
		return Frame{}, fmt.Errorf("receive a frame: %w", err)
	}
	return Frame{Data: append([]byte(nil), s.buf[:n]...), Unsummed: unsummed(oob[:oobn])}, nil
}

// unsummed reports, from the kernel's control messages, whether the checksum is still missing.
func unsummed(oob []byte) bool {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		if len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_CSUMNOTREADY != 0
		}
	}
	return false
}

// Close closes the socket and unblocks Receive.
func (s *Socket) Close() error { return s.file.Close() }
