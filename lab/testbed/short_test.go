package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestShortConnections(t *testing.T) {
	for _, program := range []string{"nginx", "ss"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	const port = 42013
	root, want := t.TempDir(), []byte("what the file holds")
	if err := os.WriteFile(filepath.Join(root, "small"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := StartWebServer(t.Context(), localhost{}, root, t.TempDir(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	for _, clientCloses := range []bool{false, true} {
		o := ShortOptions{
			Client: localhost{}, Server: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
			File: "small", Want: want, Count: 100, AtOnce: 7, ClientCloses: clientCloses,
		}
		for i, c := range short(t, o) {
			if c.Failure != NoFailure || c.Err != nil || c.Took <= 0 {
				t.Fatalf("client closes %v, connection %d: %q, %v, %v", clientCloses, i, c.Failure, c.Err, c.Took)
			}
		}
		o.Want = []byte("what the file holdz")
		for i, c := range short(t, o) {
			if c.Failure != WrongBytes {
				t.Fatalf("client closes %v, connection %d with other bytes: %q, %v", clientCloses, i, c.Failure, c.Err)
			}
		}
	}
}

func short(t *testing.T, o ShortOptions) []ShortConnection {
	t.Helper()
	all, err := Short(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestShortConnectionsThatFail runs servers whose answers must not be accepted.
func TestShortConnectionsThatFail(t *testing.T) {
	answer := func(asked string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + askedHeader + ": " + asked + "\r\n" + seenFromHeader + ": %s\r\n\r\nok"
	}
	for _, c := range []struct {
		name  string
		serve func(*net.TCPConn)
		want  Failure
	}{
		{"resets", func(c *net.TCPConn) { _ = c.SetLinger(0) }, ResetOnRead},
		{"says nothing", func(*net.TCPConn) {}, WrongBytes},
		{"answers another", func(c *net.TCPConn) { fmt.Fprintf(c, answer("number=9"), c.RemoteAddr()) }, WrongBytes},
		{"takes it for another", func(c *net.TCPConn) { fmt.Fprintf(c, answer("number=0"), "127.0.0.1:1") }, WrongBytes},
		{"says more", func(c *net.TCPConn) { fmt.Fprintf(c, answer("number=0")+"more", c.RemoteAddr()) }, WrongBytes},
		{"answers", func(c *net.TCPConn) { fmt.Fprintf(c, answer("number=0"), c.RemoteAddr()) }, NoFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := serveOne(t, c.serve)
			got := short(t, ShortOptions{Client: localhost{}, Server: at, File: "x", Want: []byte("ok"), Count: 1, AtOnce: 1})
			if got[0].Failure != c.want {
				t.Errorf("%q (%v), want %q", got[0].Failure, got[0].Err, c.want)
			}
		})
	}
}

// serveOne accepts one connection, reads the request, calls f to answer, and closes.
func serveOne(t *testing.T, f func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 4096)); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		f(c)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestFailuresAreSorted(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("read: %w", &net.OpError{Op: "read", Err: err}) }
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{wrapped(syscall.ECONNRESET), ResetOnConnect},
		{wrapped(syscall.ECONNREFUSED), ResetOnConnect},
		{wrapped(syscall.ETIMEDOUT), TimedOut},
		{wrapped(os.ErrDeadlineExceeded), TimedOut},
		{context.DeadlineExceeded, TimedOut},
		{io.ErrUnexpectedEOF, WrongBytes},
		{wrapped(syscall.EADDRNOTAVAIL), OtherFailure},
	} {
		if got := FailureOf(c.err, ResetOnConnect); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

func TestShortConnectionsThatAreCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := serveOne(t, func(*net.TCPConn) { cancel() })
	all, err := Short(ctx, ShortOptions{Client: localhost{}, Server: at, File: "x", Count: 1, AtOnce: 1})
	if !errors.Is(err, context.Canceled) || all != nil {
		t.Errorf("%v, %v: what was cut off counts as failed", all, err)
	}
}
