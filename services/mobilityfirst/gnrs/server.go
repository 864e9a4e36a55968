package gnrs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// batch is how many datagrams are read or sent at once, datagram the longest that is read.
	batch, datagram = 64, 2048
	// maxAnswers bounds the answers that wait to be sent.
	maxAnswers = 16384
	// readPause is how long nothing is read after that has failed.
	readPause = 10 * time.Millisecond
	// socketBuffer is what may wait to be read, in bytes.
	socketBuffer = 4 << 20
)

// Options is what a server works with.
type Options struct {
	// Store has the records; it may be Shared. The server does not close it.
	Store Store
	// Listen is the UDP address, one of the machine's: answers come from there. The port is
	// gnrswire.Port by convention.
	Listen netip.AddrPort
	// Others are the name services of other domains; nil for none.
	Others Others
	// Limits bound what each address does; the zero value stands for DefaultLimits.
	Limits Limits
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Counters count what a server has done since its start.
type Counters struct {
	// Lookups and Writes are what was asked and written, Answers by how they ended.
	Lookups, Writes uint64
	Answers         map[Code]uint64
	// Malformed are datagrams that are no message, Dropped answers that found no room.
	Malformed, Dropped uint64
}

// Server answers what it is asked by UDP.
type Server struct {
	Options
	conn    *net.UDPConn
	askers  *askers
	watches *watches
	others  *questions    // for others
	shared  Shared        // Store, if it is; nil if not
	aside   *aside        // for shared
	waited  chan outgoing // answers that had to wait, for the store or for others
	notices chan outgoing // what tells of changes
	lines   lograte.Limit

	lookups, written, malformed, dropped atomic.Uint64
	answers                              [Unreachable + 1]atomic.Uint64
}

// outgoing is an answer.
type outgoing struct {
	to netip.AddrPort
	b  []byte
}

// Listen opens the socket of a server, which answers once it runs.
func Listen(o Options) (*Server, error) {
	if o.Listen.Addr().IsUnspecified() {
		return nil, fmt.Errorf("name service at %v: want one address of this machine, from which its answers come", o.Listen)
	}
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(o.Listen))
	if err != nil {
		return nil, fmt.Errorf("name service: %w", err)
	}
	_ = conn.SetReadBuffer(socketBuffer) // as much as there may be
	s := &Server{Options: o, conn: conn, askers: newAskers(o.Limits), waited: make(chan outgoing, maxAnswers), notices: make(chan outgoing, maxAnswers)}
	s.watches = newWatches(func(to netip.AddrPort, m *gnrswire.Message) {
		if s.askers.allow(to.Addr(), asks, time.Now()) { // as much as its questions may be answered
			s.later(s.notices, to, m)
		}
	})
	s.others, s.aside = newQuestions(s), newAside(s)
	if shared, is := s.Store.(Shared); is {
		s.shared = shared
		shared.Changed(s.change)
	}
	if s.Others != nil {
		s.Others.Changed(s.change)
	}
	return s, nil
}

// change is for a name of which something new is known: who has asked for it is told.
func (s *Server) change(name frame.GUID) {
	s.others.change(name)
	s.watches.change(name)
}

// Addr is where it listens.
func (s *Server) Addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Counters reads them.
func (s *Server) Counters() Counters {
	c := Counters{Lookups: s.lookups.Load(), Writes: s.written.Load(), Malformed: s.malformed.Load(), Dropped: s.dropped.Load(), Answers: map[Code]uint64{}}
	for code := range s.answers {
		if n := s.answers[code].Load(); n > 0 {
			c.Answers[Code(code)] = n
		}
	}
	return c
}

// Run answers until ctx ends, and closes the socket.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	defer s.others.tasks.Stop()
	defer s.aside.tasks.Stop()
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() { cancel(s.serve(ctx)) })
	}
	all.Go(func() { s.send(ctx) })
	all.Go(func() { s.watches.run(ctx) })
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve reads and answers until the socket is closed.
func (s *Server) serve(ctx context.Context) error {
	p := ipv4.NewPacketConn(s.conn)
	in, out := messages(datagram), messages(0)
	var free [batch][]byte // room for answers
	var writes []*waiting
	for {
		n, err := p.ReadBatch(in, 0)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.lines.Warn(s.Log, "reading from the socket", "error", err)
			if tasks.Sleep(ctx, readPause) != nil {
				return nil
			}
			continue
		}
		now, count := time.Now(), 0
		add := func(to netip.AddrPort, b []byte) {
			if len(b) > 0 {
				free[count], out[count].Buffers[0], out[count].Addr = b, b, net.UDPAddrFromAddrPort(to)
				count++
			}
		}
		writes = writes[:0]
		for _, m := range in[:n] {
			to, b, w := s.begin(free[count][:0], m.Addr.(*net.UDPAddr).AddrPort(), m.Buffers[0][:m.N], now)
			if w != nil {
				writes = append(writes, w)
			}
			add(to, b)
		}
		for i, err := range verify(writes, now) {
			add(writes[i].to, s.start(free[count][:0], writes[i], err, now))
		}
		s.writeAll(p, out[:count])
	}
}

// verify says what is wrong with records that are to be written.
func verify(writes []*waiting, now time.Time) []error {
	if len(writes) == 0 {
		return nil
	}
	all := make([]*record.Record, len(writes))
	for i, w := range writes {
		all[i] = w.record
	}
	return record.VerifyTogether(all, now)
}

// messages are a batch with room for so many bytes each.
func messages(size int) []ipv4.Message {
	all := make([]ipv4.Message, batch)
	for i := range all {
		all[i].Buffers = [][]byte{make([]byte, size)}
	}
	return all
}

// writeAll sends answers; one that cannot be sent does not hold up the others.
func (s *Server) writeAll(p *ipv4.PacketConn, all []ipv4.Message) {
	for len(all) > 0 {
		n, err := p.WriteBatch(all, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.dropped.Add(1)
			n = max(n, 0) + 1
		}
		all = all[min(n, len(all)):]
	}
}

// send sends what is not answered at once: answers before all else.
func (s *Server) send(ctx context.Context) {
	p, out := ipv4.NewPacketConn(s.conn), messages(0)
	for {
		count := 0
		add := func(x outgoing) {
			out[count].Buffers[0], out[count].Addr = x.b, net.UDPAddrFromAddrPort(x.to)
			count++
		}
		select {
		case <-ctx.Done():
			return
		case x := <-s.waited:
			add(x)
		case x := <-s.notices:
			add(x)
		}
		for _, queue := range []chan outgoing{s.waited, s.notices} {
			for more := true; more && count < batch; {
				select {
				case x := <-queue:
					add(x)
				default:
					more = false
				}
			}
		}
		s.writeAll(p, out[:count])
	}
}

// later has something sent that is not answered at once. It does not block.
func (s *Server) later(queue chan outgoing, to netip.AddrPort, m *gnrswire.Message) {
	b, err := m.AppendTo(nil)
	if err != nil {
		s.lines.Warn(s.Log, "an answer cannot be written", "error", err)
		return
	}
	select {
	case queue <- outgoing{to, b}:
	default:
		s.dropped.Add(1)
	}
}
