package listen

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Patient is a listener whose Accept returns an error only if the listener has been closed, or if a
// deadline that its owner has set has passed. All other errors are about a single connection, or
// about a temporary state of the machine, such as too few descriptors or too little memory. After
// such an error Accept waits a moment and tries again. Otherwise a temporary error would end a
// server for good.
type Patient struct {
	net.Listener
	tell   func(error)
	closed chan struct{}
	once   sync.Once
}

// Pauses after errors. firstPause is the pause after the first error, which doubles with each
// further error in a row. longestPause is the longest pause.
const (
	firstPause   = time.Millisecond
	longestPause = time.Second
)

// New returns a Patient for l. tell is called with each error after which Accept tries again.
func New(l net.Listener, tell func(error)) *Patient {
	return &Patient{Listener: l, tell: tell, closed: make(chan struct{})}
}

// Accept returns the next connection. It returns an error only if the listener has been closed or
// the deadline set by its owner has passed.
func (p *Patient) Accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		conn, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		p.tell(err)
		timer := time.NewTimer(pause)
		select {
		case <-p.closed:
			timer.Stop()
			return nil, net.ErrClosed
		case <-timer.C:
		}
	}
}

// Close closes the listener and ends the wait of Accept.
func (p *Patient) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}
