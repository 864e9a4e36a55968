package gnrs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxAttempts is how often a request is sent, and attemptTimeout how long each answer may take,
	// as in the original release.
	maxAttempts, attemptTimeout = 2, 500 * time.Millisecond
	// maxPending limits the pending requests of a client.
	maxPending = 4096
)

// Errors of a client.
var (
	// ErrNoAnswer means that the server does not answer.
	ErrNoAnswer = errors.New("no answer")
	// ErrTooManyPending means that the client has too many pending requests.
	ErrTooManyPending = errors.New("too many questions wait for their answers")
	// ErrClosed means that the client has been closed.
	ErrClosed = errors.New("the client is closed")
)

// Client sends requests to a name service. Its methods may be called concurrently.
type Client struct {
	server netip.AddrPort
	conn   *net.UDPConn
	self   gnrswire.Address
	done   chan struct{}
	// changed is called with names that have changed, if their lookups asked for that. It must not
	// block.
	changed func(frame.GUID)
	// localOnly makes requests ask the server to answer by itself, without other domains.
	localOnly bool

	mu       sync.Mutex
	next     uint32
	pending  map[uint32]chan *gnrswire.Message
	closed   bool
	distance distance
	cookie   []byte // the last cookie of the server; nil if there is none
}

// distance describes how fast a server answers.
type distance struct {
	roundTrip   time.Duration // the weighted mean of round-trip times
	silentSince time.Time     // when it last did not answer; zero if it has answered since
}

const (
	// roundTripWeight determines the weighted mean: a new round trip counts 1/roundTripWeight.
	roundTripWeight = 8
	// silentFor is how long a server that has not answered counts as distant.
	silentFor = 5 * time.Second
)

// Dial returns a client of the server at an address. It sends nothing yet.
func Dial(server netip.AddrPort) (*Client, error) { return dial(server, func(frame.GUID) {}) }

func dial(server netip.AddrPort, changed func(frame.GUID)) (*Client, error) {
	return dialFrom(netip.Addr{}, server, changed)
}

// dialFrom does what dial does, from a local address; the zero value selects any address.
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
	c := &Client{server: server, conn: conn, done: make(chan struct{}), changed: changed, next: rand.Uint32(), pending: map[uint32]chan *gnrswire.Message{}}
	c.self = requester(self)
	go c.read()
	return c, nil
}

// Close closes the client; pending calls return ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.conn.Close()
	<-c.done
	return err
}

// Lookup looks a name up and verifies the answer, so no server can forge an answer. The error is a
// *RefusedError with NotFound for a name without a record. Otherwise it wraps ErrNoAnswer, or an
// error of package record if the answer is not valid. A server can still hide a record, or return
// an older one that has not expired.
func (c *Client) Lookup(ctx context.Context, name frame.GUID) (*record.Record, error) {
	r, _, err := c.lookup(ctx, name)
	return r, err
}

// lookup looks a name up as Lookup does, with further options. It also returns how long the answer
// may be cached.
func (c *Client) lookup(ctx context.Context, name frame.GUID, more ...gnrswire.Option) (*record.Record, time.Duration, error) {
	m := &gnrswire.Message{Kind: gnrswire.Lookup, GUID: name, Options: append(more, gnrswire.Option{Kind: optionProof, Value: make([]byte, proofSize)})}
	a, err := c.ask(ctx, m)
	if err != nil {
		return nil, 0, fmt.Errorf("looking up %v at %v: %w", name, c.server, err)
	}
	r, ok, err := record.FromMessage(a, name)
	if err == nil && !ok {
		err = record.ErrSignature
	}
	if err == nil {
		err = r.Verify(time.Now())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("what %v says of %v: %w", c.server, name, err)
	}
	return r, min(answerLifetime(a), time.Until(time.Unix(r.Until, 0))), nil
}

// unwatchedLifetime is how long an answer may be cached if the client will not be notified of
// changes.
const unwatchedLifetime = time.Second

// answerLifetime returns how long an answer may be cached.
func answerLifetime(a *gnrswire.Message) time.Duration {
	limit := unwatchedLifetime
	if hasOption(a, optionWatch, 0) {
		limit = maxAnswerLifetime
	}
	for _, o := range a.Options {
		if o.Kind == gnrswire.TimeToLive && len(o.Value) == 4 {
			return min(time.Duration(binary.BigEndian.Uint32(o.Value))*time.Second, limit)
		}
	}
	return 0
}

// Write writes a record, and returns when the server has it durably. The error is a *RefusedError
// with the reason, or wraps ErrNoAnswer, in which case the record may have been written.
func (c *Client) Write(ctx context.Context, r *record.Record) error {
	m := &gnrswire.Message{Kind: gnrswire.Update}
	r.Into(m)
	if _, err := c.ask(ctx, m); err != nil {
		return fmt.Errorf("writing %v at %v: %w", m.GUID, c.server, err)
	}
	return nil
}

// ask sends a message until it is answered. A message that needs a cookie is sent again when the
// server has sent one.
func (c *Client) ask(ctx context.Context, m *gnrswire.Message) (a *gnrswire.Message, err error) {
	m.Requester = c.self
	if c.localOnly {
		m.Options = append(m.Options, gnrswire.Option{Kind: gnrswire.Recursive, Value: []byte(optionNo)})
	}
	if m.Kind == gnrswire.Lookup && !hasOption(m, optionWatch, 0) {
		return c.exchange(ctx, m)
	}
	options := slices.Clip(m.Options)
	for range 2 {
		cookie := c.currentCookie()
		m.Options = append(options, CookieOption(cookie))
		a, err = c.exchange(ctx, m)
		if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Code != Unproven || bytes.Equal(c.currentCookie(), cookie) {
			break
		}
	}
	return a, err
}

// currentCookie returns the last cookie of the server, or nil if there is none.
func (c *Client) currentCookie() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cookie
}

// exchange sends a message until it is answered.
func (c *Client) exchange(ctx context.Context, m *gnrswire.Message) (*gnrswire.Message, error) {
	answer := make(chan *gnrswire.Message, 1)
	if err := c.register(m, answer); err != nil {
		return nil, err
	}
	defer c.unregister(m.Request)
	b, err := m.AppendTo(nil)
	if err != nil {
		return nil, err
	}
	var last error
	began := time.Now()
	for try := range maxAttempts {
		if _, last = c.conn.Write(b); errors.Is(last, net.ErrClosed) {
			return nil, ErrClosed
		}
		wait := time.NewTimer(attemptTimeout)
		select {
		case a, open := <-answer:
			wait.Stop()
			if open {
				c.recordRoundTrip(time.Since(began))
			}
			switch {
			case !open:
				return nil, ErrClosed
			case Code(a.Code) == OK:
				return a, nil
			}
			refused := &RefusedError{m.Kind, Code(a.Code)}
			if try > 0 && (refused.Code == TooOften || refused.Code == Busy) { // the first attempt may have been accepted
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
	c.distance.silentSince = time.Now()
	c.mu.Unlock()
	return nil, errors.Join(fmt.Errorf("%w, asked %d times", ErrNoAnswer, maxAttempts), last)
}

// recordRoundTrip updates the mean round-trip time.
func (c *Client) recordRoundTrip(trip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.distance
	if d.silentSince = (time.Time{}); d.roundTrip == 0 {
		d.roundTrip = trip
	}
	d.roundTrip += (trip - d.roundTrip) / roundTripWeight
}

// Distance returns a measure for the choice among several servers: the mean round-trip time. It is
// zero for a server that has not been asked yet. For a server that did not answer the last request,
// it is the maximum duration for some seconds. After that it is the earlier mean or, if the server
// has never answered, the time of an unanswered request.
func (c *Client) Distance() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch d := &c.distance; {
	case d.silentSince.IsZero():
		return d.roundTrip
	case time.Since(d.silentSince) < silentFor:
		return time.Duration(math.MaxInt64)
	default:
		return cmp.Or(d.roundTrip, maxAttempts*attemptTimeout)
	}
}

// RoundTrip returns the mean round-trip time to the server, zero if it has not answered yet, and
// reports whether the last request was not answered.
func (c *Client) RoundTrip() (trip time.Duration, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.distance.roundTrip, !c.distance.silentSince.IsZero()
}

// register assigns a number to a message, by which its answer is recognized.
func (c *Client) register(m *gnrswire.Message, answer chan *gnrswire.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case len(c.pending) >= maxPending:
		return ErrTooManyPending
	}
	for c.pending[c.next] != nil {
		c.next++
	}
	m.Request = c.next
	c.pending[m.Request] = answer
	c.next++
	return nil
}

func (c *Client) unregister(request uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, request)
}

// read passes answers to the callers that wait for them.
func (c *Client) read() {
	defer close(c.done)
	b := make([]byte, datagram)
	for {
		n, err := c.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			c.closePending()
			return
		}
		if err != nil {
			time.Sleep(readPause) // no server listens there, and its host reports that
			continue
		}
		m, err := gnrswire.Parse(append([]byte(nil), b[:n]...))
		if err != nil || !m.Answer {
			continue
		}
		if name, ok := changedName(m); ok {
			c.changed(name)
			continue
		}
		c.mu.Lock()
		answer := c.pending[m.Request]
		if cookie := CookieOf(m); answer != nil && cookie != nil {
			c.cookie = cookie
		}
		c.mu.Unlock()
		if answer == nil {
			continue
		}
		select {
		case answer <- m:
		default: // it has been answered already
		}
	}
}

// closePending ends all pending calls.
func (c *Client) closePending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for request, answer := range c.pending {
		close(answer)
		delete(c.pending, request)
	}
}
