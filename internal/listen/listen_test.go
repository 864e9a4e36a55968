package listen_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/internal/listen"
)

// failing is a listener that fails some times before it accepts.
type failing struct {
	net.Listener
	errs []error
	next atomic.Int64
}

func (f *failing) Accept() (net.Conn, error) {
	if i := int(f.next.Add(1)) - 1; i < len(f.errs) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", f.errs[i])}
	}
	return f.Listener.Accept()
}

// What a machine lacks for a moment ends nothing.
func TestAcceptOutlastsWhatPasses(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passing := []error{syscall.ENFILE, syscall.EMFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM}
	var told []error
	p := listen.New(&failing{Listener: l, errs: passing}, func(err error) { told = append(told, err) })
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if len(told) != len(passing) {
		t.Errorf("told of %v, want one of each of %v", told, passing)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener gives %v", err)
	}
}

// Close ends a wait.
func TestCloseEndsAWait(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 64)
	p := listen.New(&failing{Listener: l, errs: slices.Repeat([]error{syscall.ENOMEM}, 1000)}, func(err error) { waits <- err })
	ended := make(chan error, 1)
	go func() {
		_, err := p.Accept()
		ended <- err
	}()
	for range 8 {
		<-waits
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
}
