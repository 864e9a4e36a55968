package host

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxApplications limits the connected applications, and maxApplicationsPerUser those that one
	// user runs, except root and the user that runs the host.
	maxApplications, maxApplicationsPerUser = 64, 48
	// attachTimeout is how long an application may take to attach its name, and writeTimeout how
	// long it may take to read a message.
	attachTimeout, writeTimeout = 10 * time.Second, time.Minute
	// finalWriteTimeout is how long the last messages to an application may take when its
	// connection ends.
	finalWriteTimeout = time.Second
	// maxFirstMessage is the maximum size of an application's first message in bytes.
	maxFirstMessage = 64
	// maxPing is the longest time that a ping may wait.
	maxPing = time.Minute
)

// Serve accepts applications on a listener until ctx ends, and then closes it. Package hostapi
// defines the protocol.
func (h *Host) Serve(ctx context.Context, l net.Listener) error {
	all := tasks.New()
	defer all.Stop()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var connected applicationCounts
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("applications: %w", err)
		}
		user := userOf(conn)
		if err := connected.add(user); err != nil {
			refuseApplication(conn, err)
			continue
		}
		all.Start(func(ctx context.Context) {
			defer connected.remove(user)
			h.serveApplication(ctx, conn)
		})
	}
}

// applicationCounts counts the connected applications by their users. Its methods may be called
// concurrently.
type applicationCounts struct {
	mu     sync.Mutex
	total  int
	byUser map[int]int
}

// add counts one more application of a user, or returns an error if there is no room for it.
func (c *applicationCounts) add(user int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= maxApplications {
		return fmt.Errorf("%d applications are connected, the most there may be: %w", c.total, ErrTooMany)
	}
	if n := c.byUser[user]; n >= maxApplicationsPerUser && user != 0 && user != os.Geteuid() {
		return fmt.Errorf("%d applications of user %d are connected, the most that one user may run: %w", n, user, ErrTooMany)
	}
	if c.byUser == nil {
		c.byUser = map[int]int{}
	}
	c.total++
	c.byUser[user]++
	return nil
}

// remove stops counting an application of a user.
func (c *applicationCounts) remove(user int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.byUser[user]--; c.byUser[user] == 0 {
		delete(c.byUser, user)
	}
}

// unknownUser stands for the users of all connections whose user the kernel does not tell.
const unknownUser = -1

// userOf returns the number of the user who has opened the other end of a Unix socket.
func userOf(conn net.Conn) int {
	user := unknownUser
	c, ok := conn.(syscall.Conn)
	if !ok {
		return user
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return user
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = int(peer.Uid)
		}
	})
	return user
}

// refuseApplication tells an application why it is not served, and closes its connection. It does
// not block, because the buffer of a new connection has room for the message.
func refuseApplication(conn net.Conn, reason error) {
	m := hostapi.Message{Kind: hostapi.Failed, Reason: reason.Error()}
	_ = conn.SetWriteDeadline(time.Now().Add(finalWriteTimeout))
	_, _ = conn.Write(m.AppendHead(nil))
	_ = conn.Close()
}

// serveApplication serves an application until it disconnects or violates the protocol.
func (h *Host) serveApplication(ctx context.Context, conn net.Conn) {
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

// application is a connected application with an attached name.
type application struct {
	conn     net.Conn
	endpoint *Endpoint
	notices  chan hostapi.Message // results to send to it, with room for all that can be pending
	// sends and pings contain one element for each chunk and each ping whose result is pending.
	sends, pings chan struct{}

	writing  sync.Mutex
	out      *bufio.Writer
	deadline time.Time // the deadline of writing

	mu      sync.Mutex
	untaken map[uint32]*Received
	bytes   int           // the size of their payloads
	room    chan struct{} // signals that some of them were taken
}

func (a *application) attach(h *Host, in *bufio.Reader) error {
	_ = a.conn.SetReadDeadline(time.Now().Add(attachTimeout))
	m, err := hostapi.Read(in, maxFirstMessage)
	if err != nil {
		return err
	}
	if m.Kind != hostapi.Attach {
		return fmt.Errorf("kind %d before a name was attached: %w", m.Kind, hostapi.ErrMessage)
	}
	key := ed25519.NewKeyFromSeed(m.Seed[:])
	if a.endpoint, err = h.Attach(key); errors.Is(err, ErrAttached) {
		// An application that has just ended may still have the name attached.
		select {
		case <-h.detached(record.NameOfOwner(key)):
		case <-time.After(finalWriteTimeout):
		}
		a.endpoint, err = h.Attach(key)
	}
	if err != nil {
		return err
	}
	_ = a.conn.SetReadDeadline(time.Time{})
	return a.write(hostapi.Message{Kind: hostapi.Attached, Name: a.endpoint.Name}, true)
}

// write sends a message, immediately if now is set or else together with a later one.
func (a *application) write(m hostapi.Message, now bool) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.extendDeadline()
	_, _ = a.out.Write(m.AppendHead(a.out.AvailableBuffer()))
	_, err := a.out.Write(m.Payload)
	if now {
		return a.out.Flush()
	}
	return err
}

// extendDeadline gives a write that begins now at least half of writeTimeout. The caller holds
// a.writing.
func (a *application) extendDeadline() {
	if now := time.Now(); a.deadline.Sub(now) < writeTimeout/2 {
		a.deadline = now.Add(writeTimeout)
		_ = a.conn.SetWriteDeadline(a.deadline)
	}
}

// run handles messages of the application until the connection ends. The error is to be sent to the
// application.
func (a *application) run(in *bufio.Reader) error {
	work := tasks.New()
	defer work.Stop()
	defer func() { _ = a.conn.SetWriteDeadline(time.Now().Add(finalWriteTimeout)) }()
	work.Start(a.sendNotices)
	work.Start(a.deliver)
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
			err = a.finish(m.Number, (*Received).Take)
		case hostapi.Refuse:
			err = a.finish(m.Number, (*Received).Refuse)
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

// send queues a chunk, or sends the application the reason why that is not possible. It does not
// wait.
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
		a.notices <- notice // the channel has room for all
	}
	if err := a.endpoint.TrySend(m.Name, m.Service, m.Payload, done); err != nil {
		done(err)
	}
	return nil
}

// sendNotices sends the application the results of its chunks and pings.
func (a *application) sendNotices(ctx context.Context) {
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

// flush sends the messages that write has not sent yet. If it fails, it ends the connection.
func (a *application) flush() {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.extendDeadline()
	if a.out.Flush() != nil {
		_ = a.conn.Close()
	}
}

// deliver sends received chunks to the application. It sends chunks together that wait together.
func (a *application) deliver(ctx context.Context) {
	for number := uint32(0); ; number++ {
		if !a.hasRoom() {
			a.flush()
			if !a.waitForRoom(ctx) {
				return
			}
		}
		r := a.endpoint.tryReceive()
		if r == nil {
			a.flush()
			var err error
			if r, err = a.endpoint.Receive(ctx); err != nil {
				return
			}
		}
		a.mu.Lock()
		a.untaken[number] = r
		a.bytes += len(r.Payload)
		a.mu.Unlock()
		m := hostapi.Message{Kind: hostapi.ChunkCame, Number: number, Name: r.From, Service: r.Service, Place: r.Place(), Payload: r.Payload}
		if a.write(m, false) != nil {
			_ = a.conn.Close()
			return
		}
	}
}

// hasRoom reports whether the application has taken enough chunks to get another one.
func (a *application) hasRoom() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.untaken) < hostapi.MaxAhead && a.bytes < hostapi.MaxAheadBytes
}

// waitForRoom waits until the application has taken enough chunks, and reports whether it has
// before ctx ended.
func (a *application) waitForRoom(ctx context.Context) bool {
	for !a.hasRoom() {
		select {
		case <-a.room:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// finish takes or refuses a chunk as the application demands.
func (a *application) finish(number uint32, do func(*Received)) error {
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

// ping starts a ping to a name.
func (a *application) ping(work *tasks.Group, m hostapi.Message) error {
	select {
	case a.pings <- struct{}{}:
	default:
		return fmt.Errorf("more than %d pings at once: %w", hostapi.MaxPings, ErrTooMany)
	}
	work.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, min(m.Within, maxPing))
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
