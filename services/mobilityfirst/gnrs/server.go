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
	// batch is the number of datagrams that are read or sent at once, and datagram the maximum size
	// of a received one.
	batch, datagram = 64, 2048
	// maxAnswers limits the answers that wait to be sent.
	maxAnswers = 16384
	// readPause is the pause after a failed read.
	readPause = 10 * time.Millisecond
	// socketBuffer is the size of the receive buffer in bytes.
	socketBuffer = 4 << 20
)

// Options configures a Server.
type Options struct {
	// Store holds the records; it may be Shared. The server does not close it.
	Store Store
	// Listen is the UDP address, one of this machine's, from which answers are sent. The port is
	// gnrswire.Port by convention.
	Listen netip.AddrPort
	// Others reaches the name services of other domains; nil if there are none.
	Others Others
	// Limits limits the requests of each address; the zero value selects DefaultLimits.
	Limits Limits
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Counters counts what a server has done since its start.
type Counters struct {
	// Lookups and Writes count requests, and Answers counts answers by their code.
	Lookups, Writes uint64
	Answers         map[Code]uint64
	// Malformed counts datagrams that are not valid messages, and Dropped the answers for which
	// there was no room.
	Malformed, Dropped uint64
}

// Server answers requests by UDP.
type Server struct {
	Options
	conn       *net.UDPConn
	limits     *sourceLimits
	cookies    *cookies
	watches    *watches
	forwarder  *forwarder    // lookups that other domains answer
	shared     Shared        // Store if it is Shared, otherwise nil
	storeQueue *storeQueue   // requests that wait for shared
	delayed    chan outgoing // answers that had to wait for the store or for other domains
	notices    chan outgoing // notifications of changes
	warnLimit  lograte.Limit

	lookups, written, malformed, dropped atomic.Uint64
	answers                              [Unproven + 1]atomic.Uint64
}

// outgoing is a datagram to send.
type outgoing struct {
	to netip.AddrPort
	b  []byte
}

// Listen opens the socket of a server, which answers once Run is called.
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
	_ = conn.SetReadBuffer(socketBuffer) // as much as the system allows
	domains := 0
	if o.Others != nil {
		domains = o.Others.Count()
	}
	s := &Server{Options: o, conn: conn, limits: newSourceLimits(o.Limits, domains), cookies: newCookies(), delayed: make(chan outgoing, maxAnswers), notices: make(chan outgoing, maxAnswers)}
	s.watches = newWatches(func(to netip.AddrPort, m *gnrswire.Message) {
		if s.limits.allow(source{to.Addr(), true}, useLookup, time.Now()) { // notifications count as lookups of the address
			s.sendLater(s.notices, to, m)
		}
	})
	s.forwarder, s.storeQueue = newForwarder(s), newStoreQueue(s)
	if shared, ok := s.Store.(Shared); ok {
		s.shared = shared
		shared.Changed(s.nameChanged)
	}
	if s.Others != nil {
		s.Others.Changed(s.nameChanged)
	}
	return s, nil
}

// nameChanged handles a changed record: clients that have asked for the name are notified.
func (s *Server) nameChanged(name frame.GUID) {
	s.forwarder.nameChanged(name)
	s.watches.nameChanged(name)
}

// Addr returns the address of the server.
func (s *Server) Addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Counters returns the current counters.
func (s *Server) Counters() Counters {
	c := Counters{Lookups: s.lookups.Load(), Writes: s.written.Load(), Malformed: s.malformed.Load(), Dropped: s.dropped.Load(), Answers: map[Code]uint64{}}
	for code := range s.answers {
		if n := s.answers[code].Load(); n > 0 {
			c.Answers[Code(code)] = n
		}
	}
	return c
}

// Run answers requests until ctx ends, and closes the socket.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	defer s.forwarder.tasks.Stop()
	defer s.storeQueue.tasks.Stop()
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

// serve reads and answers requests until the socket is closed.
func (s *Server) serve(ctx context.Context) error {
	p := ipv4.NewPacketConn(s.conn)
	in, out := messages(datagram), messages(0)
	var free [batch][]byte // buffers for answers
	var writes []*pendingWrite
	for {
		n, err := p.ReadBatch(in, 0)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.warnLimit.Warn(s.Log, "reading from the socket", "error", err)
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
			to, b, w := s.prepare(free[count][:0], m.Addr.(*net.UDPAddr).AddrPort(), m.Buffers[0][:m.N], now)
			if w != nil {
				writes = append(writes, w)
			}
			add(to, b)
		}
		for i, err := range verify(writes, now) {
			add(writes[i].to, s.finishWrite(free[count][:0], writes[i], err, now))
		}
		s.writeAll(p, out[:count])
	}
}

// verify verifies the records of writes, and returns an error or nil for each.
func verify(writes []*pendingWrite, now time.Time) []error {
	if len(writes) == 0 {
		return nil
	}
	all := make([]*record.Record, len(writes))
	for i, w := range writes {
		all[i] = w.record
	}
	return record.VerifyBatch(all, now)
}

// messages returns a batch of messages with buffers of this size.
func messages(size int) []ipv4.Message {
	all := make([]ipv4.Message, batch)
	for i := range all {
		all[i].Buffers = [][]byte{make([]byte, size)}
	}
	return all
}

// writeAll sends answers. One that cannot be sent does not delay the others.
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

// send sends delayed answers and notifications, answers first.
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
		case x := <-s.delayed:
			add(x)
		case x := <-s.notices:
			add(x)
		}
		for _, queue := range []chan outgoing{s.delayed, s.notices} {
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

// sendLater queues a datagram for send. It does not block.
func (s *Server) sendLater(queue chan outgoing, to netip.AddrPort, m *gnrswire.Message) {
	b, err := m.AppendTo(nil)
	if err != nil {
		s.warnLimit.Warn(s.Log, "an answer cannot be written", "error", err)
		return
	}
	select {
	case queue <- outgoing{to, b}:
	default:
		s.dropped.Add(1)
	}
}
