package soak

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
)

// localhost dials and listens on this machine.
type localhost struct{}

func (localhost) Do(f func() error) error { return f() }

// TestStreamIsChecked runs a stream through a relay that passes all bytes, or once does something
// that the stream must detect.
func TestStreamIsChecked(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(net.Conn, []byte) []byte // changes what the server sends
		want  testbed.Failure
	}{
		{"right", func(_ net.Conn, b []byte) []byte { return b }, testbed.NoFailure},
		{"a byte changed", func(_ net.Conn, b []byte) []byte { b[0] ^= 1; return b }, testbed.WrongBytes},
		{"a byte left out", func(_ net.Conn, b []byte) []byte { return b[1:] }, testbed.WrongBytes},
		{"ended early", func(c net.Conn, b []byte) []byte { _ = c.(*net.TCPConn).CloseWrite(); return b }, testbed.ResetOnRead},
		{"reset", func(c net.Conn, b []byte) []byte { _ = c.(*net.TCPConn).SetLinger(0); c.Close(); return b }, testbed.ResetOnRead},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := make(chan struct{}) // closed when a failure is printed
			var once sync.Once
			rec := newRecord(writer(func() { once.Do(func() { close(status) }) }))
			passed := make(chan struct{}) // closed when some pieces have passed
			r := startRelay(t, c.spoil, passed)
			s := &stream{name: "s", part: partSOS, from: localhost{}, to: localhost{}, server: r.to, dial: r.at, rate: 50_000, rec: rec}
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- s.run(t.Context(), stop) }()
			if c.want == testbed.NoFailure {
				<-passed
			} else {
				<-status
			}
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			got := rec.loads["s"]
			if c.want == testbed.NoFailure {
				if got.right != 1 || len(got.failures) != 0 || got.bytes == 0 {
					t.Errorf("%+v, want one right", got)
				}
				return
			}
			if f := got.failures[0]; f.kind != c.want {
				t.Errorf("%q (%v), want %q", f.kind, f.err, c.want)
			}
		})
	}
}

// writer is called for each write.
type writer func()

func (w writer) Write(b []byte) (int, error) { w(); return len(b), nil }

// relayed holds the addresses of a relay and of the server behind it.
type relayed struct{ at, to netip.AddrPort }

// startRelay relays every connection. It calls spoil for each piece from the server, and closes
// passed after some of them.
func startRelay(t *testing.T, spoil func(net.Conn, []byte) []byte, passed chan struct{}) relayed {
	t.Helper()
	listen := func() (*net.TCPListener, netip.AddrPort) {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().(*net.TCPAddr).AddrPort()
	}
	l, at := listen()
	free, to := listen()
	free.Close()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer down.Close()
				up, err := net.Dial("tcp", to.String())
				if err != nil {
					return
				}
				defer up.Close()
				running.Go(func() { _, _ = io.Copy(up, down); _ = up.(*net.TCPConn).CloseWrite() })
				piece := make([]byte, 4096)
				for n := 1; ; n++ {
					got, err := up.Read(piece)
					if err != nil {
						return
					}
					if _, err := down.Write(spoil(down, piece[:got])); err != nil {
						return
					}
					if n == 5 {
						close(passed)
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return relayed{at, to}
}
