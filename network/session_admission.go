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
	cfg        *Config
	log        *slog.Logger
	refusalLog lograte.Limit // lines that anybody can cause who connects
	sessionLog lograte.Limit // the same, once a switch has said which it is
	// unknown are the seats of connections from anywhere, expected those of connections
	// from homes, and proven those of connections whose peers have shown a certificate.
	unknown, known, certified *pendingLimiter
	knownAddrs                knownAddresses
	reconnects                reconnectLimiter
	sessions                  atomic.Int64
}

func newAdmission(c *Config) admission {
	return admission{
		cfg: c, log: c.Log,
		unknown: newPendingLimiter(maxPending, maxPendingPerSource), known: newPendingLimiter(maxPending, maxPendingPerSource), certified: newPendingLimiter(maxPending, maxPendingPerSource),
	}
}

// accept takes connections until ctx ends or the listener is closed, and has those served
// that get a seat.
func (a *admission) accept(ctx context.Context, l net.Listener, serve func(net.Conn, *pendingConn)) error {
	patient := listen.New(l, func(err error) {
		a.refusalLog.Warn(a.log, "cannot accept switches for now", "error", err)
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
		s := a.addPending(conn)
		if s == nil {
			a.refusalLog.Warn(a.log, "connection refused: too many that have not said which switch they are of", "from", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		if a.cfg.TLS != nil {
			conn = tlsconn.Server(conn, a.cfg.TLS)
		}
		serve(conn, s)
	}
}

// addPending finds a connection a seat: one of those of strangers, or of those of addresses that
// switches have come from, which strangers elsewhere take not; nil if there is none.
func (a *admission) addPending(conn net.Conn) *pendingConn {
	limiter, now := a.unknown, time.Now()
	if a.knownAddrs.has(hostOf(conn.RemoteAddr()), now) {
		limiter = a.known
	}
	return limiter.add(conn, sourceByAddress(conn), now)
}

// authenticate makes the greeting of TLS, if that is used, within a time. A connection whose peer
// shows a certificate of a trusted authority gets a seat that strangers cannot take.
func (a *admission) authenticate(ctx context.Context, conn net.Conn, pending *pendingConn) error {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("greeting of TLS: %w", err)
	}
	source, ok := sourceByCertificate(secured)
	if ok && !pending.moveTo(a.certified, source, time.Now()) {
		return errors.New("too many connections with its certificate have not said which switch they are of")
	}
	return nil
}

// delayReconnect has a switch wait that has come and gone too often.
func (a *admission) delayReconnect(ctx context.Context, d openflow.DatapathID, from net.Addr) error {
	wait := a.reconnects.delay(d, hostOf(from), a.isConfigured(d), time.Now())
	if wait > maxReconnectDelay {
		return fmt.Errorf("it comes and goes: not before %v are over", wait.Truncate(time.Millisecond))
	}
	return tasks.Sleep(ctx, wait)
}

// errTooManySwitches says that no more switches are let in.
var errTooManySwitches = errors.New("too many switches")

// admit counts a session whose switch is known now, which has to be released. The bound is
// for switches that the configuration does not tell of: anybody may make up identifiers
// where certificates are not bound to them.
func (a *admission) admit(d openflow.DatapathID) error {
	if a.sessions.Add(1) > int64(a.cfg.MaxSwitches) && !a.isConfigured(d) {
		a.release()
		return fmt.Errorf("%w: openflow.max_switches is %d, and network.switches does not tell of it", errTooManySwitches, a.cfg.MaxSwitches)
	}
	return nil
}

func (a *admission) release() { a.sessions.Add(-1) }

// isConfigured reports whether the configuration tells of a switch.
func (a *admission) isConfigured(d openflow.DatapathID) bool {
	_, named := a.cfg.Names[d]
	_, overridden := a.cfg.Overrides[d]
	return named || overridden && d != 0
}

// logRefusal writes why a switch is not let in.
func (a *admission) logRefusal(s *Switch, err error) {
	a.refusalLog.Warn(a.log, "switch refused", "switch", s.dpid, "from", s.conn.RemoteAddr(), "error", err)
}

// logSession writes what became of a session: always of a switch that the configuration
// tells of, and of others as long as they are not too many.
func (a *admission) logSession(d openflow.DatapathID, msg string, args ...any) {
	args = append([]any{"switch", d}, args...)
	if a.isConfigured(d) {
		a.log.Info(msg, args...)
		return
	}
	a.sessionLog.Info(a.log, msg, args...)
}

// knownAddresses are the addresses that switches have been up from.
type knownAddresses struct {
	mu       sync.Mutex
	lastSeen map[netip.Addr]time.Time // when one came up or left
}

const (
	// knownAddressAge is how long an address is remembered.
	knownAddressAge = time.Hour
	// maxKnownAddresses bounds them.
	maxKnownAddresses = 4096
)

func (h *knownAddresses) add(a netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lastSeen == nil {
		h.lastSeen = map[netip.Addr]time.Time{}
	}
	if _, ok := h.lastSeen[a]; !ok && len(h.lastSeen) >= maxKnownAddresses {
		maps.DeleteFunc(h.lastSeen, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > knownAddressAge })
		if len(h.lastSeen) >= maxKnownAddresses {
			return
		}
	}
	h.lastSeen[a] = now
}

func (h *knownAddresses) has(a netip.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.lastSeen[a]
	return ok && now.Sub(at) <= knownAddressAge
}
