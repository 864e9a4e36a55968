package sos

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// serve runs an ordinary TCP server on the lab's server host. f handles each connection;
// its result is ignored, because tests check the client.
func (w *world) serve(port uint16, f func(*net.TCPConn)) {
	w.t.Helper()
	var ln net.Listener
	err := w.lab.Host("server").Do(func() (err error) {
		ln, err = net.Listen("tcp", w.serverAddr(port).String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				// The connection ends with the test, whatever f waits for.
				stop := context.AfterFunc(w.t.Context(), func() { _ = c.SetDeadline(time.Unix(1, 0)) })
				defer stop()
				f(c.(*net.TCPConn))
			})
		}
	})
	w.t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
}

// dial connects from the lab's client host, as its ordinary programs do.
func (w *world) dial(ctx context.Context, to netip.AddrPort, from ...netip.AddrPort) (*net.TCPConn, error) {
	var c net.Conn
	err := w.lab.Host("client").Do(func() (err error) {
		var d net.Dialer
		if len(from) > 0 {
			d.LocalAddr = net.TCPAddrFromAddrPort(from[0])
		}
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// mustDial is dial within testTimeout. The connection is closed with the test.
func (w *world) mustDial(port uint16) *net.TCPConn {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	c, err := w.dial(ctx, w.serverAddr(port))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// content returns an endless stream that is determined by a seed.
func content(seed uint64) io.Reader {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	return rand.NewChaCha8(key)
}

// sum returns the checksum of the first n bytes of a content.
func sum(seed uint64, n int64) string {
	h := sha256.New()
	_, _ = io.CopyN(h, content(seed), n)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// download serves n bytes of a content to each connection at a port.
func (w *world) download(port uint16, seed uint64, n int64) {
	w.serve(port, func(c *net.TCPConn) { _, _ = io.CopyN(c, content(seed), n) })
}

// inParts serves a content in parts of so many bytes to one connection at a port. It sends
// the first part at once, and each further part when the returned function is called.
func (w *world) inParts(port uint16, seed uint64, parts ...int64) (next func()) {
	w.t.Helper()
	allowed := make(chan struct{}, len(parts))
	w.serve(port, func(c *net.TCPConn) {
		all := content(seed)
		for i, n := range parts {
			if i > 0 {
				select {
				case <-allowed:
				case <-w.t.Context().Done():
					return
				}
			}
			if _, err := io.CopyN(c, all, n); err != nil {
				return
			}
		}
	})
	return func() { allowed <- struct{}{} }
}

// drain reads a connection to its end and returns the checksum.
func drain(c net.Conn, within time.Duration) (string, int64, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	h := sha256.New()
	n, err := io.Copy(h, c)
	return fmt.Sprintf("%x", h.Sum(nil)), n, err
}

// wantContent checks that a connection delivers exactly the content.
func (w *world) wantContent(c net.Conn, seed uint64, n int64) {
	w.t.Helper()
	got, read, err := drain(c, 2*testTimeout)
	if err != nil || read != n || got != sum(seed, n) {
		w.t.Errorf("read %d bytes (%.12s), %v; want %d (%.12s)", read, got, err, n, sum(seed, n))
	}
}

// timedOut says whether an error is a missed deadline, which in these tests
// means that somebody hangs.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// copyContent writes n bytes of a content.
func copyContent(w io.Writer, seed uint64, n int64) (int64, error) {
	return io.CopyN(w, content(seed), n)
}
