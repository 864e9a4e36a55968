package listen

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Patient is a listener whose Accept returns connections, or that it was closed or a
// deadline that its owner has set is over. All other errors are of one connection or of
// the machine's present state, which has no descriptors or no memory for more: it waits a
// moment and goes on. A server that ends by them would have ended for good by what passes.
type Patient struct {
	net.Listener
	tell   func(error)
	closed chan struct{}
	once   sync.Once
}

// The pauses after errors: the first, doubled with each in a row, and the longest.
const (
	firstPause   = time.Millisecond
	longestPause = time.Second
)

// New makes l patient. tell is told of each error that is waited out.
func New(l net.Listener, tell func(error)) *Patient {
	return &Patient{Listener: l, tell: tell, closed: make(chan struct{})}
}

// Accept returns the next connection. The error is that its owner has ended it.
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
