package testbed

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Bulk is one TCP transfer between two hosts, of a given size or for a given time.
type Bulk struct {
	From, To Inside
	Addr     netip.AddrPort // address of the receiver
	Bytes    int64          // 0 means for Time
	Time     time.Duration
	// Multipath makes both ends use MPTCP instead of plain TCP.
	Multipath bool
}

// bulkStep is the resolution at which arriving bytes are counted.
const bulkStep = 100 * time.Millisecond

// BulkLog records the arrival of a transfer's bytes, by the receiver's clock.
type BulkLog struct {
	Begin time.Time // when the connection was accepted
	steps []int64   // bytes in each bulkStep since Begin
	Bytes int64
	Took  time.Duration // time until the last byte
}

// Add counts bytes that have arrived at the given time after Begin.
func (l *BulkLog) Add(after time.Duration, n int) {
	l.Took = after
	step := int(after / bulkStep)
	for len(l.steps) <= step {
		l.steps = append(l.steps, 0)
	}
	l.steps[step] += int64(n)
	l.Bytes += int64(n)
}

// Mbit returns the mean goodput in Mbit/s.
func (l *BulkLog) Mbit() float64 {
	if l.Took <= 0 {
		return 0
	}
	return float64(l.Bytes) * 8 / 1e6 / l.Took.Seconds()
}

// Between returns the mean goodput in Mbit/s between two times after Begin, in whole steps. It
// returns false if there is no whole step between them.
func (l *BulkLog) Between(from, to time.Duration) (float64, bool) {
	first, last := int((max(from, 0)+bulkStep-1)/bulkStep), min(int(min(to, l.Took)/bulkStep), len(l.steps))
	if first >= last {
		return 0, false
	}
	var sum int64
	for _, n := range l.steps[first:last] {
		sum += n
	}
	return float64(sum) * 8 / 1e6 / (time.Duration(last-first) * bulkStep).Seconds(), true
}

// After returns the mean goodput in Mbit/s from the given time after Begin, in whole steps, until
// the last byte. It returns false if there is no such step. Bytes that a lost segment has held up
// until the end count, and so does the time.
func (l *BulkLog) After(from time.Duration) (float64, bool) {
	first := min(int((max(from, 0)+bulkStep-1)/bulkStep), len(l.steps))
	took := l.Took - time.Duration(first)*bulkStep
	if took <= 0 {
		return 0, false
	}
	left := l.Bytes
	for _, n := range l.steps[:first] {
		left -= n
	}
	return float64(left) * 8 / 1e6 / took.Seconds(), true
}

// Run performs the transfer.
func (b Bulk) Run(ctx context.Context) (*BulkLog, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ln net.Listener
	if err := b.To.Do(func() (err error) { ln, err = b.listen(ctx); return err }); err != nil {
		return nil, fmt.Errorf("transfer to %v: %w", b.Addr, err)
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	sent := make(chan error, 1)
	go func() { sent <- b.send(ctx) }()
	log, err := receiveBulk(ctx, ln)
	if err != nil {
		cancel()
	}
	if sendErr := <-sent; sendErr != nil {
		err = sendErr
	}
	if err != nil {
		return nil, fmt.Errorf("transfer to %v: %w", b.Addr, err)
	}
	return log, nil
}

func (b Bulk) listen(ctx context.Context) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(b.Multipath)
	return c.Listen(ctx, "tcp", b.Addr.String())
}

func (b Bulk) send(ctx context.Context) error {
	var conn net.Conn
	err := b.From.Do(func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		d.SetMultipathTCP(b.Multipath)
		conn, err = d.DialContext(ctx, "tcp", b.Addr.String())
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// A short buffer makes the transfer end soon after the last write.
	if err := conn.(*net.TCPConn).SetWriteBuffer(256 << 10); err != nil {
		return err
	}
	chunk := make([]byte, 16<<10)
	begin := time.Now()
	for left := b.Bytes; b.Bytes == 0 || left > 0; {
		if b.Bytes == 0 && time.Since(begin) >= b.Time {
			break
		}
		n := len(chunk)
		if b.Bytes > 0 {
			n = int(min(left, int64(n)))
			left -= int64(n)
		}
		if _, err := conn.Write(chunk[:n]); err != nil {
			return err
		}
	}
	return nil
}

// bulkRead is the number of bytes that must have arrived before they are read, except at the end.
// Dozens of receivers that wake for each packet would take the processor from the network that
// carries them.
const bulkRead = 8 << 10

// receiveBulk counts the bytes that arrive until the sender closes.
func receiveBulk(ctx context.Context, ln net.Listener) (*BulkLog, error) {
	conn, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	l := &BulkLog{Begin: time.Now()}
	if err := setOption(conn.(*net.TCPConn), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bulkRead); err != nil {
		return nil, err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			l.Add(time.Since(l.Begin), n)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return l, nil // The sender has closed.
		}
	}
}
