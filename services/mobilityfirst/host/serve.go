package host

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxApplications is how many there are at once.
	maxApplications = 64
	// attachWithin is how long one may take until it says its name, writeWithin to read a message.
	attachWithin, writeWithin = 10 * time.Second, time.Minute
	// lastWrite is how long one may take for what is written when its connection ends.
	lastWrite = time.Second
	// firstMessage is how long its first message is at most, in bytes.
	firstMessage = 64
	// longestPing is how long a ping waits at most.
	longestPing = time.Minute
)

// Serve takes applications on a listener until ctx ends, then closes it. They speak as package hostapi
// says.
func (h *Host) Serve(ctx context.Context, l net.Listener) error {
	all := tasks.New()
	defer all.Stop()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	places := make(chan struct{}, maxApplications)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("applications: %w", err)
		}
		select {
		case places <- struct{}{}:
			all.Start(func(ctx context.Context) {
				defer func() { <-places }()
				h.serve(ctx, conn)
			})
		default:
			_ = conn.Close()
		}
	}
}

// serve talks with an application until it ends, or says something wrong.
func (h *Host) serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1<<16)
	a := &application{
		conn: conn, out: bufio.NewWriterSize(conn, 1<<16), untaken: map[uint32]*Received{}, room: make(chan struct{}, 1),
		notices: make(chan hostapi.Message, hostapi.MaxSends+hostapi.MaxPings), sends: make(chan struct{}, hostapi.MaxSends), pings: make(chan struct{}, hostapi.MaxPings),
	}
	defer func() {
		if a.endpoint != nil {
			a.endpoint.Close()
		}
	}()
	err := a.attach(h, in)
	if err == nil {
		err = a.run(in)
	}
	if err != nil {
		_ = a.write(hostapi.Message{Kind: hostapi.Failed, Reason: err.Error()}, true)
	}
}

// application is one that has a name attached.
type application struct {
	conn     net.Conn
	endpoint *Endpoint
	notices  chan hostapi.Message // for it; there is room for all that can come
	// sends and pings have one for each chunk, and each ping, of which nothing was told yet.
	sends, pings chan struct{}

	writing sync.Mutex
	out     *bufio.Writer

	mu      sync.Mutex
	untaken map[uint32]*Received
	bytes   int           // of these
	room    chan struct{} // that some of them were taken
}

func (a *application) attach(h *Host, in *bufio.Reader) error {
	_ = a.conn.SetReadDeadline(time.Now().Add(attachWithin))
	m, err := hostapi.Read(in, firstMessage)
	if err != nil {
		return err
	}
	if m.Kind != hostapi.Attach {
		return fmt.Errorf("kind %d before a name was attached: %w", m.Kind, hostapi.ErrMessage)
	}
	key := ed25519.NewKeyFromSeed(m.Seed[:])
	if a.endpoint, err = h.Attach(key); errors.Is(err, ErrAttached) {
		// By an application that has just ended, perhaps.
		select {
		case <-h.detached(record.NameOfOwner(key)):
		case <-time.After(lastWrite):
		}
		a.endpoint, err = h.Attach(key)
	}
	if err != nil {
		return err
	}
	_ = a.conn.SetReadDeadline(time.Time{})
	return a.write(hostapi.Message{Kind: hostapi.Attached, Name: a.endpoint.Name}, true)
}

// write sends a message, at once or when something else does.
func (a *application) write(m hostapi.Message, now bool) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	_ = a.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	_, _ = a.out.Write(m.AppendHead(a.out.AvailableBuffer()))
	_, _ = a.out.Write(m.Payload)
	if now {
		return a.out.Flush()
	}
	return nil
}

// run takes what the application says until the connection ends; an error is for it to know.
func (a *application) run(in *bufio.Reader) error {
	work := tasks.New()
	defer work.Stop()
	defer func() { _ = a.conn.SetWriteDeadline(time.Now().Add(lastWrite)) }()
	work.Start(a.tell)
	work.Start(a.bring)
	for {
		m, err := hostapi.Read(in, hostapi.MaxMessage)
		switch {
		case errors.Is(err, hostapi.ErrMessage):
			return err
		case err != nil:
			return nil
		}
		switch m.Kind {
		case hostapi.Send:
			err = a.send(m)
		case hostapi.Take:
			err = a.done(m.Number, (*Received).Take)
		case hostapi.Refuse:
			err = a.done(m.Number, (*Received).Refuse)
		case hostapi.Ping:
			err = a.ping(work, m)
		default:
			err = fmt.Errorf("kind %d from an application: %w", m.Kind, hostapi.ErrMessage)
		}
		if err != nil {
			return err
		}
	}
}

// send sends a chunk, or says why not: it does not wait.
func (a *application) send(m hostapi.Message) error {
	select {
	case a.sends <- struct{}{}:
	default:
		return fmt.Errorf("more than %d chunks at once: %w", hostapi.MaxSends, ErrTooMany)
	}
	done := func(err error) {
		notice := hostapi.Message{Kind: hostapi.Sent, Number: m.Number}
		if err != nil {
			notice.Reason = err.Error()
		}
		a.notices <- notice // there is room for all
	}
	if err := a.endpoint.TrySend(m.Name, m.Service, m.Payload, done); err != nil {
		done(err)
	}
	return nil
}

// tell tells the application what has become of what it has asked for.
func (a *application) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-a.notices:
			if m.Kind == hostapi.Sent {
				<-a.sends
			} else {
				<-a.pings
			}
			if a.write(m, len(a.notices) == 0) != nil {
				_ = a.conn.Close()
				return
			}
		}
	}
}

// bring brings chunks that have come.
func (a *application) bring(ctx context.Context) {
	for number := uint32(0); ; number++ {
		if !a.wait(ctx) {
			return
		}
		r, err := a.endpoint.Receive(ctx)
		if err != nil {
			return
		}
		a.mu.Lock()
		a.untaken[number] = r
		a.bytes += len(r.Payload)
		a.mu.Unlock()
		m := hostapi.Message{Kind: hostapi.ChunkCame, Number: number, Name: r.From, Service: r.Service, Payload: r.Payload}
		if a.write(m, true) != nil {
			_ = a.conn.Close()
			return
		}
	}
}

// wait waits until the application has taken enough; false if ctx has ended.
func (a *application) wait(ctx context.Context) bool {
	for {
		a.mu.Lock()
		may := len(a.untaken) < hostapi.MaxAhead && a.bytes < hostapi.MaxAheadBytes
		a.mu.Unlock()
		if may {
			return true
		}
		select {
		case <-a.room:
		case <-ctx.Done():
			return false
		}
	}
}

// done does with a chunk what the application says.
func (a *application) done(number uint32, do func(*Received)) error {
	a.mu.Lock()
	r := a.untaken[number]
	if r != nil {
		delete(a.untaken, number)
		a.bytes -= len(r.Payload)
	}
	a.mu.Unlock()
	if r == nil {
		return fmt.Errorf("chunk %d is taken or refused that is not there: %w", number, hostapi.ErrMessage)
	}
	do(r)
	select {
	case a.room <- struct{}{}:
	default:
	}
	return nil
}

// ping asks for a sign of a name.
func (a *application) ping(work *tasks.Group, m hostapi.Message) error {
	select {
	case a.pings <- struct{}{}:
	default:
		return fmt.Errorf("more than %d pings at once: %w", hostapi.MaxPings, ErrTooMany)
	}
	work.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, min(m.Within, longestPing))
		defer cancel()
		pong := hostapi.Message{Kind: hostapi.Pong, Number: m.Number}
		var err error
		if pong.Within, err = a.endpoint.Ping(ctx, m.Name); err != nil {
			pong.Reason = err.Error()
		}
		a.notices <- pong
	})
	return nil
}
