package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab"
)

// FlowOptions describes a flow between two hosts.
type FlowOptions struct {
	Client, Server *lab.LiveHost
	Listen         netip.AddrPort // address of the server
	From           netip.AddrPort // address of the client; the zero value lets the kernel choose
	Dial           netip.AddrPort // address that the client dials, unless Prepare returns it
	// Prepare, if set, is called once the server listens, and returns the address that the client
	// dials.
	Prepare func(context.Context) (netip.AddrPort, error)
}

// Flow is a TCP connection from a client to a server, both in this process but in their hosts'
// namespaces. The client sends zeros, and the server discards them inside the kernel, so that
// neither costs much.
type Flow struct {
	client, server *net.TCPConn
	sent, got      atomic.Int64
}

// flowBlock is the number of bytes that one system call sends or discards.
const flowBlock = 1 << 20

// OpenFlow listens, calls Prepare, dials and accepts.
func OpenFlow(ctx context.Context, o FlowOptions) (*Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var listener *net.TCPListener
	err := o.Server.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(o.Listen))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen at the server: %w", err)
	}
	defer listener.Close()
	dial := o.Dial
	if o.Prepare != nil {
		if dial, err = o.Prepare(ctx); err != nil {
			return nil, err
		}
	}
	f := &Flow{}
	err = o.Client.Do(func() error {
		d := net.Dialer{}
		if o.From.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(o.From)
		}
		c, err := d.DialContext(ctx, "tcp", dial.String())
		if err == nil {
			f.client = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial %v at the client: %w", dial, err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = listener.SetDeadline(deadline)
	}
	if f.server, err = listener.AcceptTCP(); err != nil {
		f.client.Close()
		return nil, fmt.Errorf("accept at the server: %w", err)
	}
	return f, nil
}

// Close ends both sockets.
func (f *Flow) Close() {
	f.client.Close()
	f.server.Close()
}

// Pump sends as fast as possible for the given time, and returns what has arrived.
func (f *Flow) Pump(ctx context.Context, d time.Duration) (bytes int64, took time.Duration, err error) {
	began, before := time.Now(), f.got.Load()
	stop := began.Add(d)
	sending := make(chan error, 1)
	go func() { sending <- f.send(stop) }()
	err = f.discard(ctx, stop)
	took = time.Since(began)
	return f.got.Load() - before, took, errors.Join(err, <-sending)
}

// Push sends for the given time while nobody reads, and returns the number of bytes in flight.
func (f *Flow) Push(ctx context.Context, d time.Duration) (int64, error) {
	if err := f.send(time.Now().Add(d)); err != nil {
		return 0, err
	}
	return f.sent.Load() - f.got.Load(), context.Cause(ctx)
}

// Drain closes the client's direction and reads to the end.
func (f *Flow) Drain(ctx context.Context) (sent, got int64, err error) {
	if err := f.client.CloseWrite(); err != nil {
		return 0, 0, err
	}
	err = f.discard(ctx, time.Now().Add(time.Minute))
	return f.sent.Load(), f.got.Load(), err
}

// send writes until the deadline, which is not an error.
func (f *Flow) send(until time.Time) error {
	if err := f.client.SetWriteDeadline(until); err != nil {
		return err
	}
	block := make([]byte, flowBlock)
	for {
		n, err := f.client.Write(block)
		f.sent.Add(int64(n))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// discard reads until the deadline, which is not an error, or to the end.
func (f *Flow) discard(ctx context.Context, until time.Time) error {
	if err := f.server.SetReadDeadline(until); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.server.SetReadDeadline(time.Now()) })()
	raw, err := f.server.SyscallConn()
	if err != nil {
		return err
	}
	block := make([]byte, flowBlock)
	ended := false
	for !ended && err == nil {
		var n int
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			// With MSG_TRUNC the kernel discards what it would have copied.
			n, _, failed = unix.Recvfrom(int(fd), block, unix.MSG_TRUNC)
			return failed != unix.EAGAIN
		})
		if failed != nil && failed != unix.EAGAIN {
			err = fmt.Errorf("receive: %w", failed)
		}
		f.got.Add(int64(max(n, 0)))
		ended = err == nil && n == 0
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}
