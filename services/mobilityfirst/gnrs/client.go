package gnrs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// tries is how often something is asked, tryFor how long each answer may take, as the original
	// release has it.
	tries, tryFor = 2, 500 * time.Millisecond
	// maxAsked bounds the questions of a client that wait for their answers.
	maxAsked = 4096
)

// Errors of a client.
var (
	// ErrNoAnswer is for a server that does not answer.
	ErrNoAnswer = errors.New("no answer")
	// ErrAsked is for a question of a client that has too many already.
	ErrAsked = errors.New("too many questions wait for their answers")
	// ErrClosed is for a client that has been closed.
	ErrClosed = errors.New("the client is closed")
)

// Client asks a name service. Its methods may be called concurrently.
type Client struct {
	server netip.AddrPort
	conn   *net.UDPConn
	self   gnrswire.Address
	ended  chan struct{}
	// changed is told of names that have changed, of those for which that was asked. It must not block.
	changed func(frame.GUID)
	// alone asks for what the server knows by itself.
	alone bool

	mu       sync.Mutex
	next     uint32
	asked    map[uint32]chan *gnrswire.Message
	closed   bool
	distance distance
}

// distance is how far a server is.
type distance struct {
	trip   time.Duration // a mean of round trips
	silent time.Time     // when it last did not answer; zero if it has since
}

const (
	// tripWeight is how many round trips their mean is over, the newest the most.
	tripWeight = 8
	// silentFor is for how long a server that has not answered counts as far.
	silentFor = 5 * time.Second
)

// Dial makes a client of the server at an address. It sends nothing yet.
func Dial(server netip.AddrPort) (*Client, error) { return dial(server, func(frame.GUID) {}) }

func dial(server netip.AddrPort, changed func(frame.GUID)) (*Client, error) {
	return dialFrom(netip.Addr{}, server, changed)
}

// dialFrom is dial from one of this machine's addresses; the zero value stands for any.
func dialFrom(local netip.Addr, server netip.AddrPort, changed func(frame.GUID)) (*Client, error) {
	var from *net.UDPAddr
	if local.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	conn, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return nil, fmt.Errorf("name service at %v: %w", server, err)
	}
	self := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	c := &Client{server: server, conn: conn, ended: make(chan struct{}), changed: changed, next: rand.Uint32(), asked: map[uint32]chan *gnrswire.Message{}}
	c.self = requester(self)
	go c.read()
	return c, nil
}

// Close ends it; who waits gets ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.conn.Close()
	<-c.ended
	return err
}

// Lookup asks where a name is, and verifies the answer: no server can make one up. The error is a
// *RefusedError with NotFound for a name that nobody has told of, or wraps ErrNoAnswer or what package
// record says of a wrong answer. A server may still hide a record, or give one that is older and holds.
func (c *Client) Lookup(ctx context.Context, name frame.GUID) (*record.Record, error) {
	r, _, err := c.lookup(ctx, name)
	return r, err
}

// lookup is Lookup, and says for how long the answer may be kept. More options may be asked for.
func (c *Client) lookup(ctx context.Context, name frame.GUID, more ...gnrswire.Option) (*record.Record, time.Duration, error) {
	m := &gnrswire.Message{Kind: gnrswire.Lookup, GUID: name, Options: append(more, gnrswire.Option{Kind: optionProof, Value: make([]byte, proofSize)})}
	a, err := c.ask(ctx, m)
	if err != nil {
		return nil, 0, fmt.Errorf("looking up %v at %v: %w", name, c.server, err)
	}
	r, is, err := record.FromMessage(a, name)
	if err == nil && !is {
		err = record.ErrSignature
	}
	if err == nil {
		err = r.Verify(time.Now())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("what %v says of %v: %w", c.server, name, err)
	}
	return r, min(lifetime(a), time.Until(time.Unix(r.Until, 0))), nil
}

// untoldFor is how long an answer may be kept whose change will not be told.
const untoldFor = time.Second

// lifetime is how long an answer may be kept.
func lifetime(a *gnrswire.Message) time.Duration {
	most := untoldFor
	if has(a, optionWatch, 0) {
		most = keepFor
	}
	for _, o := range a.Options {
		if o.Kind == gnrswire.TimeToLive && len(o.Value) == 4 {
			return min(time.Duration(binary.BigEndian.Uint32(o.Value))*time.Second, most)
		}
	}
	return 0
}

// Write has the server keep a record, and returns when its disk has it. The error is a *RefusedError
// that says why it is refused, or wraps ErrNoAnswer: then it may have been written.
func (c *Client) Write(ctx context.Context, r *record.Record) error {
	m := &gnrswire.Message{Kind: gnrswire.Update}
	r.Into(m)
	if _, err := c.ask(ctx, m); err != nil {
		return fmt.Errorf("writing %v at %v: %w", m.GUID, c.server, err)
	}
	return nil
}

// ask sends a message until it is answered.
func (c *Client) ask(ctx context.Context, m *gnrswire.Message) (*gnrswire.Message, error) {
	m.Requester = c.self
	if c.alone {
		m.Options = append(m.Options, gnrswire.Option{Kind: gnrswire.Recursive, Value: []byte(optionNo)})
	}
	answer := make(chan *gnrswire.Message, 1)
	if err := c.enter(m, answer); err != nil {
		return nil, err
	}
	defer c.leave(m.Request)
	b, err := m.AppendTo(nil)
	if err != nil {
		return nil, err
	}
	var last error
	began := time.Now()
	for try := range tries {
		if _, last = c.conn.Write(b); errors.Is(last, net.ErrClosed) {
			return nil, ErrClosed
		}
		wait := time.NewTimer(tryFor)
		select {
		case a, open := <-answer:
			wait.Stop()
			if open {
				c.answered(time.Since(began))
			}
			switch {
			case !open:
				return nil, ErrClosed
			case Code(a.Code) == OK:
				return a, nil
			}
			refused := &RefusedError{m.Kind, Code(a.Code)}
			if try > 0 && (refused.Code == TooOften || refused.Code == Busy) { // the first time it may have been taken
				return nil, errors.Join(ErrNoAnswer, refused)
			}
			return nil, refused
		case <-ctx.Done():
			wait.Stop()
			return nil, context.Cause(ctx)
		case <-wait.C:
		}
	}
	c.mu.Lock()
	c.distance.silent = time.Now()
	c.mu.Unlock()
	return nil, errors.Join(fmt.Errorf("%w, asked %d times", ErrNoAnswer, tries), last)
}

// answered notes a round trip.
func (c *Client) answered(trip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.distance
	if d.silent = (time.Time{}); d.trip == 0 {
		d.trip = trip
	}
	d.trip += (trip - d.trip) / tripWeight
}

// Distance is how far the server is for who chooses among several: the mean round trip; zero if it has not been asked
// yet, what a question takes that is not answered if it never has been, and a long time if that was some seconds ago.
func (c *Client) Distance() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch d := &c.distance; {
	case d.silent.IsZero():
		return d.trip
	case time.Since(d.silent) < silentFor:
		return time.Duration(math.MaxInt64)
	default:
		return cmp.Or(d.trip, tries*tryFor)
	}
}

// Heard is the mean round trip to the server, zero if it has not answered yet, and whether it did not when it was asked last.
func (c *Client) Heard() (trip time.Duration, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.distance.trip, !c.distance.silent.IsZero()
}

// enter gives a message its number, by which its answer is known.
func (c *Client) enter(m *gnrswire.Message, answer chan *gnrswire.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case len(c.asked) >= maxAsked:
		return ErrAsked
	}
	for c.asked[c.next] != nil {
		c.next++
	}
	m.Request = c.next
	c.asked[m.Request] = answer
	c.next++
	return nil
}

func (c *Client) leave(request uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, request)
}

// read gives answers to who waits for them.
func (c *Client) read() {
	defer close(c.ended)
	b := make([]byte, datagram)
	for {
		n, err := c.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			c.end()
			return
		}
		if err != nil {
			time.Sleep(readPause) // a server that is not there: its host says so
			continue
		}
		m, err := gnrswire.Parse(append([]byte(nil), b[:n]...))
		if err != nil || !m.Answer {
			continue
		}
		if name, is := changedName(m); is {
			c.changed(name)
			continue
		}
		c.mu.Lock()
		answer := c.asked[m.Request]
		c.mu.Unlock()
		if answer == nil {
			continue
		}
		select {
		case answer <- m:
		default: // it has been answered
		}
	}
}

// end tells all who wait that there are no more answers.
func (c *Client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for request, answer := range c.asked {
		close(answer)
		delete(c.asked, request)
	}
}
