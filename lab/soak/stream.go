package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// stream is a TCP connection whose bytes are checked in both directions. It is opened again when it
// breaks, and when its life is over.
type stream struct {
	name     string
	part     part
	from, to testbed.Inside
	server   netip.AddrPort
	dial     netip.AddrPort // the address that the client dials, if it is not the server's
	rate     int            // bytes a second in each direction
	life     time.Duration  // how long each connection lasts; 0 means as long as the soak
	rec      *record
	counts   sync.Map // *counts by the connection's number
}

// counts holds the bytes of a connection that each end has sent and received.
type counts struct{ sentUp, gotUp, sentDown, gotDown atomic.Int64 }

// complete returns an error unless all bytes sent have been received.
func (c *counts) complete() error {
	up, down := c.sentUp.Load()-c.gotUp.Load(), c.sentDown.Load()-c.gotDown.Load()
	if up != 0 || down != 0 {
		return fmt.Errorf("%w: it ended with %d bytes missing at the server and %d at the client", errWrongBytes, up, down)
	}
	return nil
}

func (s *stream) countsOf(n uint64) *counts {
	c, _ := s.counts.LoadOrStore(n, &counts{})
	return c.(*counts)
}

const (
	// streamTick is the interval at which a stream sends a piece.
	streamTick = 20 * time.Millisecond
	// streamSilence bounds the time in which nothing arrives.
	streamSilence = 30 * time.Second
	dialLimit     = 20 * time.Second
	// reopenDelay is the time until a connection that broke is opened again.
	reopenDelay = 200 * time.Millisecond
)

// errWrongBytes means that the bytes received are not those that were sent.
var errWrongBytes = errors.New("wrong bytes")

// run keeps the stream open until stop is closed.
func (s *stream) run(ctx context.Context, stop <-chan struct{}) error {
	var listener *net.TCPListener
	err := s.to.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.server))
		return err
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.name, err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer listener.Close()
	serving.Go(func() { s.serve(ctx, listener, &serving) })
	for n := uint64(0); ; n++ {
		began := time.Now()
		bytes, err := s.connection(ctx, n, stop)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			s.rec.right(s.name, s.part, 0, bytes)
			s.rec.fail(failure{load: s.name, part: s.part, kind: kindOf(err), began: began, at: time.Now(), err: err})
		default:
			s.rec.right(s.name, s.part, 1, bytes)
		}
		if !pause(ctx, stop, reopenDelay) {
			return context.Cause(ctx)
		}
	}
}

// kindOf returns the kind of failure of a connection's error.
func kindOf(err error) testbed.Failure {
	if errors.Is(err, errWrongBytes) || errors.Is(err, io.ErrUnexpectedEOF) {
		return testbed.WrongBytes
	}
	return testbed.FailureOf(err, testbed.ResetOnRead)
}

// connection is the client's side of one connection. It sends the connection's number first.
func (s *stream) connection(ctx context.Context, n uint64, stop <-chan struct{}) (checked int64, err error) {
	to := s.server
	if s.dial.IsValid() {
		to = s.dial
	}
	var c net.Conn
	err = s.from.Do(func() (err error) {
		d := net.Dialer{Timeout: dialLimit}
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	tcp, count := c.(*net.TCPConn), s.countsOf(n)
	defer s.counts.Delete(n)
	if _, err := tcp.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- s.send(tcp, source(n, true), &count.sentUp, stop, s.life) }()
	err = receive(tcp, source(n, false), &count.gotDown)
	if err != nil {
		tcp.Close() // Otherwise the sender would continue until it notices.
	}
	if err = errors.Join(err, <-sent); err == nil {
		err = count.complete()
	}
	return count.gotDown.Load(), err
}

// serve accepts connections and answers each in a goroutine.
func (s *stream) serve(ctx context.Context, l *net.TCPListener, serving *sync.WaitGroup) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return // The listener was closed.
		}
		serving.Go(func() { s.answer(ctx, c) })
	}
}

// answer is the server's side of a connection. It records only wrong bytes, because the client sees
// every other error too.
func (s *stream) answer(ctx context.Context, c *net.TCPConn) {
	began := time.Now()
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var number [8]byte
	_ = c.SetReadDeadline(time.Now().Add(streamSilence))
	if _, err := io.ReadFull(c, number[:]); err != nil {
		return
	}
	n := binary.BigEndian.Uint64(number[:])
	count := s.countsOf(n)
	ended, sent := make(chan struct{}), make(chan error, 1)
	go func() { sent <- s.send(c, source(n, false), &count.sentDown, ended, 0) }()
	err := receive(c, source(n, true), &count.gotUp)
	if err != nil {
		c.Close()
	}
	close(ended)
	<-sent
	s.rec.right(s.name, s.part, 0, count.gotUp.Load())
	if errors.Is(err, errWrongBytes) {
		s.rec.fail(failure{load: s.name, part: s.part, kind: testbed.WrongBytes, began: began, at: time.Now(), err: fmt.Errorf("at the server: %w", err)})
	}
}

// source returns the generator of the bytes of one direction of a connection.
func source(n uint64, up bool) *rand.ChaCha8 {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], n)
	if up {
		seed[31] = 1
	}
	return rand.NewChaCha8(seed)
}

// send sends at the stream's rate until stop is closed or life has passed, and then closes its
// direction.
func (s *stream) send(c *net.TCPConn, from *rand.ChaCha8, count *atomic.Int64, stop <-chan struct{}, life time.Duration) error {
	var over <-chan time.Time
	if life > 0 {
		t := time.NewTimer(life)
		defer t.Stop()
		over = t.C
	}
	piece := make([]byte, max(1, s.rate/int(time.Second/streamTick)))
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return c.CloseWrite()
		case <-over:
			return c.CloseWrite()
		case <-tick.C:
		}
		_, _ = from.Read(piece) // never fails
		count.Add(int64(len(piece)))
		if err := c.SetWriteDeadline(time.Now().Add(streamSilence)); err != nil {
			return err
		}
		if _, err := c.Write(piece); err != nil {
			return err
		}
	}
}

// receive compares the bytes that arrive with want until the other end closes its direction.
func receive(c *net.TCPConn, want *rand.ChaCha8, count *atomic.Int64) error {
	got, expected := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if err := c.SetReadDeadline(time.Now().Add(streamSilence)); err != nil {
			return err
		}
		n, err := c.Read(got)
		_, _ = want.Read(expected[:n])
		for i := range n {
			if got[i] != expected[i] {
				return fmt.Errorf("%w: byte %d is %#x, want %#x", errWrongBytes, count.Load()+int64(i), got[i], expected[i])
			}
		}
		count.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
