package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// conn is a proxied connection.
type conn struct {
	connKey
	proxy       *Proxy
	peer        *peer
	client      netip.Addr    // the client of Serve; zero for connections of another side
	lastData    atomic.Int64  // when it last carried data, in nanoseconds since 1970
	dataReady   chan struct{} // signals that there is data for TCP
	creditReady chan struct{} // signals that there is credit
	done        chan struct{} // closed when the connection has ended

	mu            sync.Mutex
	tcp           net.Conn // nil until the TCP connection exists
	closed        bool
	cancel        func()   // cancels dialing; nil if it is not needed
	credit        int      // the number of bytes that may be sent
	sent          uint64   // the number of bytes sent
	sentEnd       bool     // the end has been sent
	received      [][]byte // received data for TCP
	bytes         int      // the size of received
	receivedCount uint64   // the number of bytes received
	gotEnd        bool     // the end has been received
	ended         int      // the number of directions that have ended
}

// carried records that the connection carries data now.
func (c *conn) carried() { c.lastData.Store(time.Now().UnixNano()) }

// withTimeout returns a context that ends with the connection, or after a time.
func (c *conn) withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel = cancel; c.closed {
		cancel()
	}
	return ctx, cancel
}

// finishing reports whether both sides have sent their end. What remains then is to pass received
// data to TCP, for which the other side need not know the connection any more.
func (c *conn) finishing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sentEnd && c.gotEnd
}

var errEnded = errors.New("the connection is over")

// setTCP sets the TCP connection, or closes it if the connection has already ended.
func (c *conn) setTCP(tcp net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tcp = tcp; c.closed {
		abort(tcp)
	}
}

// start sends the first messages and then carries both directions.
func (c *conn) start(first ...message) {
	out := func(ctx context.Context) {
		for _, m := range first {
			if c.send(ctx, m) != nil {
				c.fail()
				return
			}
		}
		c.proxy.tasks.Start(c.keepalive)
		c.endDirection(c.toPeer(ctx))
	}
	for _, f := range []func(context.Context){out, func(ctx context.Context) { c.endDirection(c.toTCP(ctx)) }} {
		if !c.proxy.tasks.Start(f) {
			c.fail()
		}
	}
}

// endDirection records the end of one direction. The connection ends after both.
func (c *conn) endDirection(err error) {
	if err != nil {
		c.fail()
		return
	}
	c.mu.Lock()
	c.ended++
	both := c.ended == 2
	c.mu.Unlock()
	if both {
		c.close()
	}
}

// fail ends the connection and resets it at the other side.
func (c *conn) fail() {
	c.proxy.reset(c.connKey)
	c.close()
}

// close ends the connection. Data that TCP has not taken are lost, and TCP is reset, unless both
// directions have ended.
func (c *conn) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	close(c.done)
	if c.cancel != nil {
		c.cancel()
	}
	switch {
	case c.tcp == nil:
	case c.ended == 2:
		_ = c.tcp.Close()
	default:
		abort(c.tcp)
	}
	c.received = nil
	c.mu.Unlock()
	c.proxy.remove(c)
}

// abort ends a TCP connection by a reset (RFC 9293, 3.10.4).
func abort(tcp net.Conn) {
	if t, ok := tcp.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = tcp.Close()
}

// handle handles a message. It does not wait.
func (c *conn) handle(m message) {
	ok := true
	c.mu.Lock()
	switch m.kind {
	case kindData:
		if ok = !c.gotEnd && !c.closed && m.offset == c.receivedCount && c.bytes+len(m.body) <= Window; ok {
			c.bytes += len(m.body)
			c.receivedCount += uint64(len(m.body))
			c.buffer(m.body)
			if len(m.body) > 0 {
				c.carried()
			}
		}
	case kindEnd:
		ok = !c.gotEnd && m.offset == c.receivedCount
		c.gotEnd = true
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
		c.fail() // the other side violates the protocol
	case m.kind == kindCredit:
		wakeUp(c.creditReady)
	default:
		wakeUp(c.dataReady)
	}
}

// buffer stores data for TCP. It joins small blocks, because each block has its own cost.
func (c *conn) buffer(b []byte) {
	if n := len(c.received); n > 0 && len(c.received[n-1])+len(b) <= maxBlock {
		c.received[n-1] = append(c.received[n-1], b...)
		return
	}
	c.received = append(c.received, b)
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// toPeer sends data from TCP to the other side, as far as there is credit.
func (c *conn) toPeer(ctx context.Context) error {
	b := make([]byte, maxBlock)
	for {
		n, err := c.waitForCredit(ctx)
		if err != nil {
			return err
		}
		n, err = c.tcp.Read(b[:n])
		if n > 0 {
			c.carried()
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
			c.sentEnd = true
			c.mu.Unlock()
			return c.send(ctx, m)
		}
		if err != nil {
			return err
		}
	}
}

// waitForCredit waits for credit, and returns how many bytes may be read.
func (c *conn) waitForCredit(ctx context.Context) (int, error) {
	for {
		c.mu.Lock()
		n := min(c.credit, maxBlock)
		c.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-c.creditReady:
		case <-c.done:
			return 0, errEnded
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// toTCP writes data from the other side to TCP, and gives credit for what TCP has taken.
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
			more := !c.gotEnd
			c.mu.Unlock()
			if taken += len(block); more && taken >= Window/4 {
				if err := c.send(ctx, credit(c.number, taken)); err != nil {
					return err
				}
				taken = 0
			}
			continue
		case end:
			if half, ok := c.tcp.(interface{ CloseWrite() error }); ok {
				return half.CloseWrite()
			}
			return nil
		}
		select {
		case <-c.dataReady:
		case <-c.done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns the next block for TCP; end reports whether there will be no more.
func (c *conn) next() (block []byte, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) == 0 {
		return nil, c.gotEnd
	}
	block = c.received[0]
	c.received[0] = nil
	c.received = c.received[1:]
	return block, false
}

// keepalive sends a message from time to time. If the other side does not take it, the connection
// ends.
func (c *conn) keepalive(ctx context.Context) {
	tick := time.NewTicker(keepaliveInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c.finishing() || c.send(ctx, credit(c.number, 0)) != nil {
				return
			}
		case <-c.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// send sends a message after waiting for room among the chunks in flight. If the message is not
// taken over, the connection ends.
func (c *conn) send(ctx context.Context, m message) error {
	b := m.appendTo(make([]byte, 0, headerSize+offsetSize+len(m.body)))
	if err := c.makeRoom(ctx, len(b)+hostapi.Overhead); err != nil {
		return err
	}
	err := c.proxy.Client.Send(ctx, c.connKey.peer, c.proxy.Service, b, func(err error) {
		c.release(len(b) + hostapi.Overhead)
		if err != nil && !c.finishing() {
			c.fail()
		}
	})
	if err != nil {
		c.release(len(b) + hostapi.Overhead)
	}
	return err
}

// makeRoom waits until a chunk may be sent to the other side, and counts it.
func (c *conn) makeRoom(ctx context.Context, size int) error {
	for {
		select {
		case <-c.done:
			return errEnded
		default:
		}
		c.proxy.mu.Lock()
		x := c.peer
		may, room := x.chunks == 0 || x.chunks < maxChunks && x.inFlight+size <= maxInFlight, x.room
		if may {
			x.inFlight += size
			x.chunks++
		}
		c.proxy.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-room:
		case <-c.done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release stops counting a chunk.
func (c *conn) release(size int) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	x := c.peer
	x.inFlight -= size
	x.chunks--
	close(x.room)
	x.room = make(chan struct{})
	c.proxy.removeIfUnused(x)
}
