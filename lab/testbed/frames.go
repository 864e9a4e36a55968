package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// frames is an interface of a host by which whole frames are sent and received: the
// kernel's IP stack has no part in it.
type frames struct {
	name    string
	file    *os.File
	running sync.WaitGroup
}

const framesBuffer = 16 << 20

func openFrames(host Inside, name string) (*frames, error) {
	f := &frames{name: name}
	if err := host.Do(f.open); err != nil {
		return nil, fmt.Errorf("open interface %s for frames: %w", name, err)
	}
	return f, nil
}

func (f *frames) open() error {
	link, err := net.InterfaceByName(f.name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, framesBuffer},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			unix.Close(fd)
			return err
		}
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
		unix.Close(fd)
		return err
	}
	f.file = os.NewFile(uintptr(fd), f.name)
	return nil
}

// Name is the interface's name.
func (f *frames) Name() string { return f.name }

// Close closes the interface and returns when nobody listens any more.
func (f *frames) Close() {
	f.file.Close()
	f.running.Wait()
}

func (f *frames) send(frame []byte) error {
	if _, err := f.file.Write(frame); err != nil {
		return fmt.Errorf("send by %s: %w", f.name, err)
	}
	return nil
}

// listen has every frame that arrives handed to take, with the time at which the kernel
// received it, until the interface is closed. The frame is overwritten after the call.
func (f *frames) listen(take func(frame []byte, at time.Time)) {
	f.running.Go(func() { f.receive(take) })
}

func (f *frames) receive(take func(frame []byte, at time.Time)) {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return
	}
	frame, oob := make([]byte, 65536), make([]byte, 128)
	for {
		var n, oobn int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, failed = unix.Recvmsg(int(fd), frame, oob, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return
		case errors.Is(failed, unix.ENETDOWN), errors.Is(failed, unix.EINTR):
			continue // the link went down; it may come up again
		case failed != nil:
			return
		}
		take(frame[:n], time.Unix(0, stamp(oob[:oobn])))
	}
}
