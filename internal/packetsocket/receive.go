package packetsocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Frame is a received frame.
type Frame struct {
	// Data is the frame from its Ethernet header on, or from its network header on if
	// Options.NetworkLayer is set.
	Data []byte
	// VLAN is the identifier in the outermost VLAN tag, which the kernel has removed from Data, or
	// zero.
	VLAN uint16
	// ChecksumMissing reports whether the frame has no valid transport checksum, because its sender
	// is on this machine and has left the checksum to a network card, which the frame has not
	// passed.
	ChecksumMissing bool
	// Time is when the kernel received the frame, if Options.Timestamps is set.
	Time time.Time
}

// Receive waits for a frame. The caller owns the frame's data. Receive returns the error of ctx
// when ctx ends, and an error when the socket is closed.
func (s *Socket) Receive(ctx context.Context) (Frame, error) {
	frames, err := s.receive(ctx, 1)
	if err != nil {
		return Frame{}, err
	}
	f := frames[0]
	f.Data = bytes.Clone(f.Data)
	return f, nil
}

// ReceiveBatch waits for frames and returns those that have arrived, at least one and at most
// Options.Batch. They are valid until the next call. ReceiveBatch returns the error of ctx when ctx
// ends, and an error when the socket is closed.
func (s *Socket) ReceiveBatch(ctx context.Context) ([]Frame, error) {
	return s.receive(ctx, len(s.in.messages))
}

var errSendOnly = errors.New("the socket was opened with SendOnly")

func (s *Socket) receive(ctx context.Context, limit int) ([]Frame, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(s.in.messages) == 0 {
		return nil, s.failed("receive", errSendOnly)
	}
	release := tasks.InterruptReads(ctx, s.file)
	defer release()
	for {
		n, err := s.read(limit)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, s.failed("receive", err)
		}
		if frames := s.frames(n); len(frames) > 0 {
			return frames, nil
		}
	}
}

// read waits until frames have arrived, reads up to limit of them, and returns how many it has read.
func (s *Socket) read(limit int) (n int, err error) {
	for i := range s.in.messages[:s.used] {
		s.in.messages[i].header.SetControllen(controlSize) // the kernel has overwritten it
	}
	s.used = 0
	ioErr := s.conn.Read(func(fd uintptr) bool {
		n, err = s.in.call(unix.SYS_RECVMMSG, fd, limit)
		return err != unix.EAGAIN
	})
	if ioErr != nil {
		return 0, ioErr
	}
	s.used = n
	return n, err
}

// frames returns the first n frames that were read, without those that are too large.
func (s *Socket) frames(n int) []Frame {
	all := s.received[:0]
	for i := range n {
		m := &s.in.messages[i]
		if m.header.Flags&unix.MSG_TRUNC != 0 {
			s.dropped++
			continue
		}
		f := Frame{Data: s.buffer(i)[:m.size:m.size]}
		f.parse(s.control[i*controlSize:][:m.header.Controllen])
		all = append(all, f)
	}
	return all
}

// Dropped returns the number of frames that were dropped because they were larger than
// Options.MaxFrame. Only the goroutine that receives may call it.
func (s *Socket) Dropped() uint64 { return s.dropped }

const (
	// auxdataSize is the size of struct tpacket_auxdata.
	auxdataSize  = 20
	timespecSize = int(unsafe.Sizeof(unix.Timespec{}))
)

// controlSize is the size in bytes of the control messages that the kernel may add to a frame.
var controlSize = unix.CmsgSpace(auxdataSize) + unix.CmsgSpace(timespecSize)

// parse reads a frame's control messages.
func (f *Frame) parse(control []byte) {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return
		}
		switch {
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= auxdataSize:
			status := binary.NativeEndian.Uint32(data)
			f.ChecksumMissing = status&unix.TP_STATUS_CSUMNOTREADY != 0
			if status&unix.TP_STATUS_VLAN_VALID != 0 {
				f.VLAN = binary.NativeEndian.Uint16(data[16:]) & 0xfff
			}
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS && len(data) >= timespecSize:
			f.Time = time.Unix((*unix.Timespec)(unsafe.Pointer(&data[0])).Unix())
		}
		control = rest
	}
}
