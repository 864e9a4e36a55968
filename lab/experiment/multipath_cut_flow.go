package experiment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// cutFlow is a connection that sends as fast as it can.
type cutFlow struct {
	began       time.Time
	client      net.Conn
	server      net.Listener
	group       *tasks.Group
	last, worst atomic.Int64 // nanoseconds since began: time of the last arrival; length of the longest pause
}

// begin opens a connection by MPTCP from one host to the other.
func (r *cutRig) begin(ctx context.Context) (f *cutFlow, err error) {
	f = &cutFlow{began: time.Now(), group: tasks.New()}
	to := netip.AddrPortFrom(r.lab.Host("b").Addr(), cutPort)
	var listen net.ListenConfig
	listen.SetMultipathTCP(true)
	if err := r.lab.Host("b").Do(func() (err error) { f.server, err = listen.Listen(ctx, "tcp4", to.String()); return err }); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	dialer.SetMultipathTCP(true)
	if err := r.lab.Host("a").Do(func() (err error) { f.client, err = dialer.DialContext(ctx, "tcp4", to.String()); return err }); err != nil {
		return nil, errors.Join(err, f.server.Close())
	}
	f.group.Start(func(context.Context) { f.send() })
	f.group.Start(func(context.Context) { f.receive() })
	return f, nil
}

func (f *cutFlow) send() {
	block := make([]byte, 64<<10)
	for {
		if _, err := f.client.Write(block); err != nil {
			return // the connection has been closed
		}
	}
}

// receive records the pauses between arrivals.
func (f *cutFlow) receive() {
	c, err := f.server.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	block := make([]byte, 256<<10)
	for {
		if _, err := c.Read(block); err != nil {
			return
		}
		now := int64(time.Since(f.began))
		if pause := now - f.last.Swap(now); pause > f.worst.Load() {
			f.worst.Store(pause)
		}
	}
}

// resetStall resets the longest pause.
func (f *cutFlow) resetStall() { f.worst.Store(0) }

// stall returns the longest pause since resetStall was called, including the present pause.
func (f *cutFlow) stall() time.Duration {
	return time.Duration(max(f.worst.Load(), int64(time.Since(f.began))-f.last.Load()))
}

func (f *cutFlow) close() {
	f.client.Close()
	f.server.Close()
	f.group.Stop()
}
