package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
)

// frames sends and receives whole frames by an interface of a host. The kernel's IP stack has no
// part in it.
type frames struct {
	name    string
	socket  *packetsocket.Socket
	running sync.WaitGroup
}

const (
	framesBuffer = 16 << 20
	framesBatch  = 32
	maxFrame     = 65536
)

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
	f.socket, err = packetsocket.Open(link, packetsocket.Options{Buffer: framesBuffer, Batch: framesBatch, MaxFrame: maxFrame, Timestamps: true})
	return err
}

// Name returns the interface's name.
func (f *frames) Name() string { return f.name }

// Close closes the interface and returns when no receiver runs any more.
func (f *frames) Close() {
	_ = f.socket.Close()
	f.running.Wait()
}

func (f *frames) send(frame []byte) error { return f.socket.Send(frame) }

// listen passes every frame that arrives to take, with the time at which the kernel received it,
// until the interface is closed. The frame is overwritten after the call.
func (f *frames) listen(take func(frame []byte, at time.Time)) {
	f.running.Go(func() { f.receive(take) })
}

func (f *frames) receive(take func(frame []byte, at time.Time)) {
	for {
		all, err := f.socket.ReceiveBatch(context.Background())
		if errors.Is(err, unix.ENETDOWN) {
			continue // the link went down; it may come up again
		}
		if err != nil {
			return
		}
		for _, one := range all {
			take(one.Data, one.Time)
		}
	}
}
