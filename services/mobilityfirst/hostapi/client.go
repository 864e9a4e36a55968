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

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// DefaultSocket is where a host is asked by default.
const DefaultSocket = "/run/sluice/mf.sock"

// Errors of a Client, which wrap them.
var (
	// ErrClosed is for a client whose connection has ended.
	ErrClosed = errors.New("the connection to the host has ended")
	// ErrNotTaken is for a chunk that the receiver has not taken.
	ErrNotTaken = errors.New("it was not taken")
	// ErrNoAnswer is for a ping that was not answered.
	ErrNoAnswer = errors.New("no answer")
)

// attachWithin is how long a host may take to attach a name.
const attachWithin = 10 * time.Second

// Client is a name that an application has attached. Its methods may be called concurrently.
type Client struct {
	// Name is the hash of its key.
	Name frame.GUID

	conn  net.Conn
	came  chan Chunk
	ended chan struct{}

	writing sync.Mutex
	out     *bufio.Writer

	mu       sync.Mutex
	number   uint32
	waiting  map[uint32]func(Message, error)
	underway int           // bytes of chunks that are not taken, each with Overhead
	sends    int           // of them
	room     chan struct{} // closed when there may be room for another
	err      error         // why it has ended
}

// Chunk is one that has come.
type Chunk struct {
	From    frame.GUID
	Service frame.Service
	Payload []byte
	number  uint32
}

// Open connects with a host and attaches the name that belongs to a key.
func Open(ctx context.Context, socket string, key ed25519.PrivateKey) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("MobilityFirst host at %s: %w (is \"sluice mf host\" running?)", socket, err)
	case err != nil:
		return nil, fmt.Errorf("MobilityFirst host at %s: %w", socket, err)
	}
	c := &Client{
		conn: conn, came: make(chan Chunk, MaxAhead), ended: make(chan struct{}), room: make(chan struct{}), out: bufio.NewWriterSize(conn, 1<<16), waiting: map[uint32]func(Message, error){},
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	if err := c.attach(ctx, in, key); err != nil {
		return nil, errors.Join(fmt.Errorf("MobilityFirst host at %s: %w", socket, err), conn.Close())
	}
	go c.read(in)
	return c, nil
}

func (c *Client) attach(ctx context.Context, in *bufio.Reader, key ed25519.PrivateKey) error {
	deadline := time.Now().Add(attachWithin)
	if d, is := ctx.Deadline(); is && d.Before(deadline) {
		deadline = d
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := c.write(Message{Kind: Attach, Seed: [SeedSize]byte(key.Seed())}); err != nil {
		return err
	}
	m, err := Read(in, MaxMessage)
	switch {
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

// write sends a message at once. The host always reads.
func (c *Client) write(m Message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.out.Write(m.AppendHead(c.out.AvailableBuffer()))
	_, _ = c.out.Write(m.Payload)
	return c.out.Flush()
}

// read takes what the host says until the connection ends.
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
		case c.came <- Chunk{m.Name, m.Service, m.Payload, m.Number}:
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

// end tells all that wait why.
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
	close(c.ended)
}

// Close detaches the name, and waits until nothing is read any more. It is no error that the
// host has ended before.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ask sends a message with a number, to which f takes the answer, in another goroutine.
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
		_ = c.conn.Close() // and f is told
	}
	return nil
}

// Send sends a chunk, after it has waited until fewer are under way. Then done is called once, in another
// goroutine: without an error when the receiver has taken the chunk, or with one that wraps ErrNotTaken or
// ErrClosed. It must not block. The error wraps ErrClosed, or is the context's; done is not called then.
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
		may, room := c.sends == 0 || c.sends < MaxSends && c.underway+bytes <= MaxUnderway, c.room
		if may {
			c.sends++
			c.underway += bytes
		}
		c.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return c.err
		}
	}
}

// taken is for a chunk that is not under way any more.
func (c *Client) taken(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sends--
	c.underway -= bytes
	close(c.room)
	c.room = make(chan struct{})
}

// Receive waits for a chunk. Its sender keeps it until it is given to Take. The error wraps ErrClosed, or
// is the context's.
func (c *Client) Receive(ctx context.Context) (Chunk, error) {
	select {
	case x := <-c.came:
		return x, nil
	case <-ctx.Done():
		return Chunk{}, ctx.Err()
	case <-c.ended:
		return Chunk{}, c.err
	}
}

// Take says that a chunk is the application's: its sender forgets it.
func (c *Client) Take(x Chunk) error {
	if err := c.write(Message{Kind: Take, Number: x.number}); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// Refuse says that a chunk is not wanted now: its sender keeps it, and tries again a little later, until its time is
// over. So it does with those that have come behind it from the same sender; each of these is still to be given to
// Take or Refuse, which do nothing then but tell the host that there is room.
func (c *Client) Refuse(x Chunk) error {
	if err := c.write(Message{Kind: Refuse, Number: x.number}); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// Ping asks the host of a name for a sign, and says how long it took. There may be MaxPings at once. The error wraps ErrNoAnswer or
// ErrClosed.
func (c *Client) Ping(to frame.GUID, within time.Duration) (took time.Duration, err error) {
	done := make(chan struct{})
	asked := c.ask(Message{Kind: Ping, Name: to, Within: within}, func(m Message, failed error) {
		defer close(done)
		if took, err = m.Within, failed; m.Reason != "" {
			err = fmt.Errorf("%w from %v: %s", ErrNoAnswer, to, m.Reason)
		}
	})
	if asked != nil {
		return 0, asked
	}
	<-done
	return took, err
}
