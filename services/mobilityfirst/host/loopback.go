package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

// loopbackMTU is the MTU of the loopback, and maxLoopback the maximum number of frames in it.
const loopbackMTU, maxLoopback = 4 << 10, 1024

// loopback returns frames to the host that sends them, so that its names find each other as they
// find those of other hosts.
type loopback struct {
	mac openflow.MAC

	mu     sync.Mutex
	frames [][]byte
	came   chan struct{}
	closed chan struct{}
	close  func()
}

func newLoopback() *Interface {
	l := &loopback{mac: openflow.MAC{2}, came: make(chan struct{}, 1), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return &Interface{MAC: l.mac, MTU: loopbackMTU, Socket: l}
}

// AppendHeader implements Socket.
func (l *loopback) AppendHeader(b []byte, to openflow.MAC, _ uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append(b, to[:]...), l.mac[:]...), frame.EtherType)
}

// Send implements Socket. Frames for which there is no room are lost.
func (l *loopback) Send(frames [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range frames[:min(len(frames), maxLoopback-len(l.frames))] {
		l.frames = append(l.frames, bytes.Clone(f))
	}
	select {
	case l.came <- struct{}{}:
	default:
	}
	return nil
}

// Receive implements Socket.
func (l *loopback) Receive(ctx context.Context) (all []rawlink.Frame, err error) {
	select {
	case <-l.came:
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.frames {
		all = append(all, rawlink.Frame{From: openflow.MAC(f[6:]), Group: group(openflow.MAC(f)), Payload: f[14:]})
	}
	l.frames = nil
	return all, nil
}

// Close implements Socket.
func (l *loopback) Close() error {
	l.close()
	return nil
}
