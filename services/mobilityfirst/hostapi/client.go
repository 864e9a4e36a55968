package hostapi

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// DefaultSocket returns the default path of a host's socket, /run/sluice/mf.sock. In a network
// namespace with a name, as hosts of a lab have it, the path contains the name, so that each
// namespace can have a host of its own.
func DefaultSocket() string {
	if name := namespace.Current(); name != "" {
		return "/run/sluice/mf." + name + ".sock"
	}
	return "/run/sluice/mf.sock"
}

// Errors that a Client wraps.
var (
	// ErrClosed means that the connection to the host has ended.
	ErrClosed = errors.New("the connection to the host has ended")
	// ErrNotTaken means that the receiver has not taken a chunk over.
	ErrNotTaken = errors.New("it was not taken")
	// ErrNoAnswer means that a ping was not answered.
	ErrNoAnswer = errors.New("no answer")
)

// attachTimeout is how long a host may take to attach a name.
const attachTimeout = 10 * time.Second

// Client is the connection of an application with an attached name. Its methods may be called
// concurrently.
type Client struct {
	// Name is the hash of the public key.
	Name frame.GUID

	conn     net.Conn
	received chan Chunk
	done     chan struct{}

	writing sync.Mutex
	out     *bufio.Writer
	written chan struct{} // signals that out contains messages

	mu            sync.Mutex
	number        uint32
	waiting       map[uint32]func(Message, error)
	inFlightBytes int           // bytes of sent chunks that have not been taken over, each with Overhead
	inFlight      int           // their number
	room          chan struct{} // closed when there may be room for another chunk; nil if nobody waits
	err           error         // why the connection has ended
}

// Chunk is a received chunk.
type Chunk struct {
	From    frame.GUID
	Service frame.Service
	Place   Place // where it has come from
	Payload []byte
	number  uint32
}

// Open connects to the host with a socket, or with DefaultSocket if socket is empty, and attaches
// the name that belongs to a key.
func Open(ctx context.Context, socket string, key ed25519.PrivateKey) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket()
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("MobilityFirst host at %s: %w (is \"sluice mf host\" running?)", socket, err)
	case err != nil:
		return nil, fmt.Errorf("MobilityFirst host at %s: %w", socket, err)
	}
	c := &Client{
		conn: conn, received: make(chan Chunk, MaxAhead), done: make(chan struct{}), out: bufio.NewWriterSize(conn, 1<<16), written: make(chan struct{}, 1), waiting: map[uint32]func(Message, error){},
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	if err := c.attach(ctx, in, key); err != nil {
		return nil, errors.Join(fmt.Errorf("MobilityFirst host at %s: %w", socket, err), conn.Close())
	}
	go c.read(in)
	go c.flushWritten()
	return c, nil
}

func (c *Client) attach(ctx context.Context, in *bufio.Reader, key ed25519.PrivateKey) error {
	deadline := time.Now().Add(attachTimeout)
	if d, is := ctx.Deadline(); is && d.Before(deadline) {
		deadline = d
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	// A host that is full sends its reason and closes the connection, perhaps before this message.
	unsent := errors.Join(c.write(Message{Kind: Attach, Seed: [SeedSize]byte(key.Seed())}), c.flush())
	m, err := Read(in, MaxMessage)
	switch {
	case err != nil && unsent != nil:
		return unsent
	case err != nil:
		return err
	case m.Kind == Failed:
		return errors.New(m.Reason)
	case m.Kind != Attached:
		return fmt.Errorf("kind %d in answer to the name: %w", m.Kind, ErrMessage)
	}
	c.Name = m.Name
	return c.conn.SetDeadline(time.Time{})
}

// write writes a message, which flushWritten sends at once, together with others that are written
// meanwhile. It does not block for long, because the host always reads.
func (c *Client) write(m Message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.out.Write(m.AppendHead(c.out.AvailableBuffer()))
	_, err := c.out.Write(m.Payload)
	select {
	case c.written <- struct{}{}:
	default:
	}
	return err
}

// flush sends the messages that have been written.
func (c *Client) flush() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.out.Flush()
}

// flushWritten sends the messages that are written, until the connection ends.
func (c *Client) flushWritten() {
	for {
		select {
		case <-c.written:
		case <-c.done:
			return
		}
		if c.flush() != nil {
			_ = c.conn.Close() // read then ends all calls
		}
	}
}

// read handles the host's messages until the connection ends.
func (c *Client) read(in *bufio.Reader) {
	for {
		m, err := Read(in, MaxMessage)
		if err == nil && m.Kind == Failed {
			err = errors.New(m.Reason)
		}
		if err == nil {
			err = c.take(m)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

func (c *Client) take(m Message) error {
	switch m.Kind {
	case ChunkCame:
		select {
		case c.received <- Chunk{m.Name, m.Service, m.Place, m.Payload, m.Number}:
			return nil
		default:
			return fmt.Errorf("more than %d chunks that are not taken: %w", MaxAhead, ErrMessage)
		}
	case Sent, Pong:
		c.mu.Lock()
		f := c.waiting[m.Number]
		delete(c.waiting, m.Number)
		c.mu.Unlock()
		if f == nil {
			return fmt.Errorf("an answer to %d, which was not asked: %w", m.Number, ErrMessage)
		}
		f(m, nil)
		return nil
	}
	return fmt.Errorf("kind %d from the host: %w", m.Kind, ErrMessage)
}

// end passes the reason of the end to all waiting calls.
func (c *Client) end(err error) {
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = fmt.Errorf("%w: %w", ErrClosed, err)
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, f := range waiting {
		f(Message{}, c.err)
	}
	close(c.done)
}

// Close detaches the name and waits until the connection has ended. It returns nil if the host has
// ended before.
func (c *Client) Close() error {
	_ = c.flush() // it fails only if the connection has ended
	err := c.conn.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ask sends a message with a new number. f is called with its answer in another goroutine.
func (c *Client) ask(m Message, f func(Message, error)) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.number++
	m.Number = c.number
	c.waiting[m.Number] = f
	c.mu.Unlock()
	if err := c.write(m); err != nil {
		_ = c.conn.Close() // read then calls f with the error
	}
	return nil
}

// Send sends a chunk, after waiting until it does not exceed the limits of chunks in flight. It
// then calls done once, in another goroutine: with nil when the receiver has taken the chunk over,
// or with an error that wraps ErrNotTaken or ErrClosed. done must not block. If Send returns an
// error, which wraps ErrClosed or is that of ctx, it does not call done.
func (c *Client) Send(ctx context.Context, to frame.GUID, service frame.Service, payload []byte, done func(error)) error {
	if err := c.makeRoom(ctx, len(payload)+Overhead); err != nil {
		return err
	}
	err := c.ask(Message{Kind: Send, Name: to, Service: service, Payload: payload}, func(m Message, err error) {
		if err == nil && m.Reason != "" {
			err = fmt.Errorf("chunk to %v: %w: %s", to, ErrNotTaken, m.Reason)
		}
		c.taken(len(payload) + Overhead)
		done(err)
	})
	if err != nil {
		c.taken(len(payload) + Overhead)
	}
	return err
}

// makeRoom waits until a chunk may be sent, and counts it.
func (c *Client) makeRoom(ctx context.Context, bytes int) error {
	for {
		c.mu.Lock()
		may := c.inFlight == 0 || c.inFlight < MaxSends && c.inFlightBytes+bytes <= MaxUnderway
		if may {
			c.inFlight++
			c.inFlightBytes += bytes
		} else if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return c.err
		}
	}
}

// taken stops counting a chunk.
func (c *Client) taken(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	c.inFlightBytes -= bytes
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// Receive waits for a chunk. Its sender keeps it until it is passed to Take. The error wraps
// ErrClosed, or is that of ctx.
func (c *Client) Receive(ctx context.Context) (Chunk, error) {
	select {
	case x := <-c.received:
		return x, nil
	case <-ctx.Done():
		return Chunk{}, ctx.Err()
	case <-c.done:
		return Chunk{}, c.err
	}
}

// Take takes a chunk over: its sender may forget it.
func (c *Client) Take(x Chunk) error {
	if err := c.write(Message{Kind: Take, Number: x.number}); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// Refuse refuses a chunk for now: its sender keeps it and tries again a little later, until its
// time has ended. Refuse also refuses the later chunks from the same sender. Each of these that has
// been received must still be passed to Take or Refuse, which then only tell the host that there is
// room.
func (c *Client) Refuse(x Chunk) error {
	if err := c.write(Message{Kind: Refuse, Number: x.number}); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// Ping asks the host of a name for an answer, and returns how long it took. There may be MaxPings
// at one time. The error wraps ErrNoAnswer or ErrClosed.
func (c *Client) Ping(to frame.GUID, within time.Duration) (roundTrip time.Duration, err error) {
	done := make(chan struct{})
	asked := c.ask(Message{Kind: Ping, Name: to, Within: within}, func(m Message, failed error) {
		defer close(done)
		if roundTrip, err = m.Within, failed; m.Reason != "" {
			err = fmt.Errorf("%w from %v: %s", ErrNoAnswer, to, m.Reason)
		}
	})
	if asked != nil {
		return 0, asked
	}
	<-done
	return roundTrip, err
}
