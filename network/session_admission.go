package network

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/openflow"
)

// admission decides which connections are served, and which switches are let in.
type admission struct {
	cfg       *Config
	log       *slog.Logger
	greetings lograte.Limit // lines that anybody can cause who connects
	churn     lograte.Limit // the same, once a switch has said which it is
	// strangers are the seats of connections from anywhere, expected those of connections
	// from homes, and proven those of connections whose peers have shown a certificate.
	strangers, expected, proven *seats
	homes                       homes
	reconnects                  reconnects
	sessions                    atomic.Int64
}

func newAdmission(c *Config) admission {
	return admission{
		cfg: c, log: c.Log,
		strangers: newSeats(seatsInAll, seatsEach), expected: newSeats(seatsInAll, seatsEach), proven: newSeats(seatsInAll, seatsEach),
	}
}

// accept takes connections until ctx ends or the listener is closed, and has those served
// that get a seat.
func (a *admission) accept(ctx context.Context, l net.Listener, serve func(net.Conn, *seat)) error {
	patient := listen.New(l, func(err error) {
		a.greetings.Warn(a.log, "cannot accept switches for now", "error", err)
	})
	defer context.AfterFunc(ctx, func() { _ = patient.Close() })()
	for {
		conn, err := patient.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting switches on %v: %w", l.Addr(), err)
		}
		s := a.seat(conn)
		if s == nil {
			a.greetings.Warn(a.log, "connection refused: too many that have not said which switch they are of", "from", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		if a.cfg.TLS != nil {
			conn = tlsconn.Server(conn, a.cfg.TLS)
		}
		serve(conn, s)
	}
}

// seat finds a connection a seat: one of those of strangers, or of those of addresses that
// switches have come from, which strangers elsewhere take not; nil if there is none.
func (a *admission) seat(conn net.Conn) *seat {
	among, now := a.strangers, time.Now()
	if a.homes.known(hostOf(conn.RemoteAddr()), now) {
		among = a.expected
	}
	return among.take(conn, addressOf(conn), now)
}

// prove makes the greeting of TLS, if that is used, within a time. A connection whose peer
// shows a certificate of a trusted authority gets a seat that strangers cannot take.
func (a *admission) prove(ctx context.Context, conn net.Conn, at *seat) error {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("greeting of TLS: %w", err)
	}
	of, shown := certificateOf(secured)
	if shown && !at.move(a.proven, of, time.Now()) {
		return errors.New("too many connections with its certificate have not said which switch they are of")
	}
	return nil
}

// hold has a switch wait that has come and gone too often.
func (a *admission) hold(ctx context.Context, d openflow.DatapathID, from net.Addr) error {
	wait := a.reconnects.wait(d, hostOf(from), a.named(d), time.Now())
	if wait > longestHold {
		return fmt.Errorf("it comes and goes: not before %v are over", wait.Truncate(time.Millisecond))
	}
	return tasks.Sleep(ctx, wait)
}

// errFull says that no more switches are let in.
var errFull = errors.New("too many switches")

// admit counts a session whose switch is known now, which has to be released. The bound is
// for switches that the configuration does not tell of: anybody may make up identifiers
// where certificates are not bound to them.
func (a *admission) admit(d openflow.DatapathID) error {
	if a.sessions.Add(1) > int64(a.cfg.MaxSwitches) && !a.named(d) {
		a.release()
		return fmt.Errorf("%w: openflow.max_switches is %d, and network.switches does not tell of it", errFull, a.cfg.MaxSwitches)
	}
	return nil
}

func (a *admission) release() { a.sessions.Add(-1) }

// named reports whether the configuration tells of a switch.
func (a *admission) named(d openflow.DatapathID) bool {
	_, named := a.cfg.Names[d]
	_, told := a.cfg.Overrides[d]
	return named || told && d != 0
}

// refuse writes why a switch is not let in.
func (a *admission) refuse(s *Switch, err error) {
	a.greetings.Warn(a.log, "switch refused", "switch", s.dpid, "from", s.conn.RemoteAddr(), "error", err)
}

// tell writes what became of a session: always of a switch that the configuration
// tells of, and of others as long as they are not too many.
func (a *admission) tell(d openflow.DatapathID, msg string, args ...any) {
	args = append([]any{"switch", d}, args...)
	if a.named(d) {
		a.log.Info(msg, args...)
		return
	}
	a.churn.Info(a.log, msg, args...)
}

// homes are the addresses that switches have been up from.
type homes struct {
	mu   sync.Mutex
	last map[netip.Addr]time.Time // when one came up or left
}

const (
	// homeAge is how long an address is remembered.
	homeAge = time.Hour
	// maxHomes bounds them.
	maxHomes = 4096
)

func (h *homes) note(a netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[netip.Addr]time.Time{}
	}
	if _, is := h.last[a]; !is && len(h.last) >= maxHomes {
		maps.DeleteFunc(h.last, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > homeAge })
		if len(h.last) >= maxHomes {
			return
		}
	}
	h.last[a] = now
}

func (h *homes) known(a netip.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, is := h.last[a]
	return is && now.Sub(at) <= homeAge
}
