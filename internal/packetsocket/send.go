package packetsocket

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Send sends a frame, with its Ethernet header, unchanged.
func (s *Socket) Send(frame []byte) error {
	var sendErr error
	err := s.conn.Write(func(fd uintptr) bool {
		_, sendErr = unix.Write(int(fd), frame)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err := errors.Join(err, sendErr); err != nil {
		return s.failed("send a frame", err)
	}
	return nil
}

// SendBatch sends frames, each with its Ethernet header, in order. It stops at the first frame that
// cannot be sent. The error wraps EMSGSIZE if the frame is larger than the interface's MTU allows, and
// ENOBUFS if the interface has had no room for about ten milliseconds.
func (s *Socket) SendBatch(frames [][]byte) error {
	for len(frames) > 0 {
		n := min(len(frames), len(s.out.messages))
		for i, f := range frames[:n] {
			s.out.set(i, f)
		}
		done, err := s.sendSome(n)
		if err != nil {
			return s.failed("send frames", err)
		}
		frames = frames[done:]
	}
	return nil
}

// Limits for retries when the interface's queue is full. sendSome polls, because nothing signals
// that the queue has room again.
const (
	maxFullRetries = 200
	fullPause      = 50 * time.Microsecond
)

// sendSome sends the first of n frames, as many as the socket accepts once it is ready, and returns how
// many it has sent.
func (s *Socket) sendSome(n int) (done int, err error) {
	for tries := 1; ; tries++ {
		ioErr := s.conn.Write(func(fd uintptr) bool {
			done, err = s.out.call(unix.SYS_SENDMMSG, fd, n)
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
