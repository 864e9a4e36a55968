package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// conn is a connection that is carried.
type conn struct {
	connKey
	proxy *Proxy
	peer  *peer
	news  chan struct{} // there is something for TCP
	more  chan struct{} // there is credit
	over  chan struct{} // closed when the connection is

	mu     sync.Mutex
	tcp    net.Conn // nil until there is one
	closed bool
	cancel func()   // of what makes it; nil for nothing
	credit int      // how many bytes may be sent
	sent   uint64   // how many were
	said   bool     // that no more will be
	came   [][]byte // for TCP
	bytes  int      // of these
	got    uint64   // how many have come
	last   bool     // nothing comes after them
	ends   int      // of both directions
}

// until is a context that ends with the connection, or after a time.
func (c *conn) until(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel = cancel; c.closed {
		cancel()
	}
	return ctx, cancel
}

// finishing says that both sides have said all: what is left is TCP's, whether the other side knows the
// connection any more or not.
func (c *conn) finishing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said && c.last
}

var errOver = errors.New("the connection is over")

// bring is for the TCP connection that has been made; it is closed if nobody wants it any more.
func (c *conn) bring(tcp net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tcp = tcp; c.closed {
		abort(tcp)
	}
}

// start says first what is to be said, and then carries both directions.
func (c *conn) start(first ...message) {
	out := func(ctx context.Context) {
		for _, m := range first {
			if c.send(ctx, m) != nil {
				c.fail()
				return
			}
		}
		c.proxy.tasks.Start(c.stayAlive)
		c.direction(c.toPeer(ctx))
	}
	for _, f := range []func(context.Context){out, func(ctx context.Context) { c.direction(c.toTCP(ctx)) }} {
		if !c.proxy.tasks.Start(f) {
			c.fail()
		}
	}
}

// direction is for one that is over. After both, the connection is.
func (c *conn) direction(err error) {
	if err != nil {
		c.fail()
		return
	}
	c.mu.Lock()
	c.ends++
	both := c.ends == 2
	c.mu.Unlock()
	if both {
		c.close()
	}
}

// fail ends the connection, and has the other side do so.
func (c *conn) fail() {
	c.proxy.reset(c.connKey)
	c.close()
}

// close ends the connection. What TCP has not taken is lost, and its end is told so, unless both directions
// have ended.
func (c *conn) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	close(c.over)
	if c.cancel != nil {
		c.cancel()
	}
	switch {
	case c.tcp == nil:
	case c.ends == 2:
		_ = c.tcp.Close()
	default:
		abort(c.tcp)
	}
	c.came = nil
	c.mu.Unlock()
	c.proxy.remove(c)
}

// abort ends a TCP connection by a reset (RFC 9293, 3.10.4).
func abort(tcp net.Conn) {
	if t, is := tcp.(*net.TCPConn); is {
		_ = t.SetLinger(0)
	}
	_ = tcp.Close()
}

// take takes a message. It does not wait.
func (c *conn) take(m message) {
	ok := true
	c.mu.Lock()
	switch m.kind {
	case kindData:
		if ok = !c.last && !c.closed && m.offset == c.got && c.bytes+len(m.body) <= Window; ok {
			c.bytes += len(m.body)
			c.got += uint64(len(m.body))
			c.keep(m.body)
		}
	case kindEnd:
		ok = !c.last && m.offset == c.got
		c.last = true
	case kindCredit:
		n := int(be.Uint32(m.body))
		ok = n <= Window && c.credit+n <= Window
		c.credit += n
	default:
		ok = false
	}
	c.mu.Unlock()
	switch {
	case m.kind == kindReset:
		if !c.finishing() {
			c.close()
		}
	case !ok:
		c.fail() // it does what it may not
	case m.kind == kindCredit:
		kick(c.more)
	default:
		kick(c.news)
	}
}

// keep has TCP get bytes later. Small blocks become one: each costs more than its bytes.
func (c *conn) keep(b []byte) {
	if n := len(c.came); n > 0 && len(c.came[n-1])+len(b) <= maxBlock {
		c.came[n-1] = append(c.came[n-1], b...)
		return
	}
	c.came = append(c.came, b)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// toPeer carries what TCP gives, as far as there is credit.
func (c *conn) toPeer(ctx context.Context) error {
	b := make([]byte, maxBlock)
	for {
		n, err := c.mayRead(ctx)
		if err != nil {
			return err
		}
		n, err = c.tcp.Read(b[:n])
		if n > 0 {
			c.mu.Lock()
			m := message{kind: kindData, number: c.number, body: b[:n], offset: c.sent}
			c.credit -= n
			c.sent += uint64(n)
			c.mu.Unlock()
			if err := c.send(ctx, m); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			c.mu.Lock()
			m := message{kind: kindEnd, number: c.number, offset: c.sent}
			c.said = true
			c.mu.Unlock()
			return c.send(ctx, m)
		}
		if err != nil {
			return err
		}
	}
}

// mayRead waits for credit, and says how much is to be read at most.
func (c *conn) mayRead(ctx context.Context) (int, error) {
	for {
		c.mu.Lock()
		n := min(c.credit, maxBlock)
		c.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-c.more:
		case <-c.over:
			return 0, errOver
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// toTCP carries what the other side sends, and gives credit for what TCP has taken.
func (c *conn) toTCP(ctx context.Context) error {
	taken := 0
	for {
		block, end := c.next()
		switch {
		case block != nil:
			if _, err := c.tcp.Write(block); err != nil {
				return err
			}
			c.mu.Lock()
			c.bytes -= len(block)
			more := !c.last
			c.mu.Unlock()
			if taken += len(block); more && taken >= Window/4 {
				if err := c.send(ctx, credit(c.number, taken)); err != nil {
					return err
				}
				taken = 0
			}
			continue
		case end:
			if half, is := c.tcp.(interface{ CloseWrite() error }); is {
				return half.CloseWrite()
			}
			return nil
		}
		select {
		case <-c.news:
		case <-c.over:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next is what TCP is to have next; end says that there is nothing more to come.
func (c *conn) next() (block []byte, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.came) == 0 {
		return nil, c.last
	}
	block = c.came[0]
	c.came[0] = nil
	c.came = c.came[1:]
	return block, false
}

// stayAlive tells the other side now and then that the connection is there: if that is not taken, it is over.
func (c *conn) stayAlive(ctx context.Context) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c.finishing() || c.send(ctx, credit(c.number, 0)) != nil {
				return
			}
		case <-c.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// send sends a message, after it has waited until fewer to the other side are under way. If it is not taken
// the connection is over.
func (c *conn) send(ctx context.Context, m message) error {
	b := m.appendTo(make([]byte, 0, headerSize+offsetSize+len(m.body)))
	if err := c.makeRoom(ctx, len(b)+hostapi.Overhead); err != nil {
		return err
	}
	err := c.proxy.Client.Send(ctx, c.connKey.peer, c.proxy.Service, b, func(err error) {
		c.room(len(b) + hostapi.Overhead)
		if err != nil && !c.finishing() {
			c.fail()
		}
	})
	if err != nil {
		c.room(len(b) + hostapi.Overhead)
	}
	return err
}

// makeRoom waits until a chunk may be sent to the other side, and counts it.
func (c *conn) makeRoom(ctx context.Context, size int) error {
	for {
		select {
		case <-c.over:
			return errOver
		default:
		}
		c.proxy.mu.Lock()
		x := c.peer
		may, room := x.chunks == 0 || x.chunks < maxChunks && x.underway+size <= maxUnderway, x.room
		if may {
			x.underway += size
			x.chunks++
		}
		c.proxy.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-room:
		case <-c.over:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// room is for a chunk that is not under way any more.
func (c *conn) room(size int) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	x := c.peer
	x.underway -= size
	x.chunks--
	close(x.room)
	x.room = make(chan struct{})
	c.proxy.settle(x)
}
