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

// admission decides which connections are served and which switches are let in.
type admission struct {
	cfg        *Config
	log        *slog.Logger
	refusalLog lograte.Limit // bounds log lines that any connection can cause
	sessionLog lograte.Limit // bounds log lines of switches that are not in the configuration
	// Three limiters count the connections that have not yet identified their switch: unknown
	// those from any address, known those from the addresses in knownAddrs, and certified those
	// whose peers have shown a trusted certificate.
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

// accept takes connections until ctx ends or the listener is closed, and calls serve for those
// that the limiters admit.
func (a *admission) accept(ctx context.Context, l net.Listener, serve func(net.Conn, *pendingConn)) error {
	listener := listen.New(l, func(err error) {
		a.refusalLog.Warn(a.log, "cannot accept switches for now", "error", err)
	})
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting switches on %v: %w", l.Addr(), err)
		}
		s := a.addPending(conn)
		if s == nil {
			a.refusalLog.Warn(a.log, "connection refused: too many connections have not yet identified their switch", "from", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		if a.cfg.TLS != nil {
			conn = tlsconn.Server(conn, a.cfg.TLS)
		}
		serve(conn, s)
	}
}

// addPending adds a connection to the limiter of its address, so that a flood from elsewhere
// cannot displace connections from addresses of known switches. It returns nil if the limiter is
// full.
func (a *admission) addPending(conn net.Conn) *pendingConn {
	limiter, now := a.unknown, time.Now()
	if a.knownAddrs.has(hostOf(conn.RemoteAddr()), now) {
		limiter = a.known
	}
	return limiter.add(conn, sourceByAddress(conn), now)
}

// authenticate performs the TLS handshake, if TLS is used, before a deadline. A connection whose
// peer shows a certificate of a trusted authority moves to a limiter of its own, where connections
// without one cannot displace it.
func (a *admission) authenticate(ctx context.Context, conn net.Conn, pending *pendingConn) error {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	source, ok := sourceByCertificate(secured)
	if ok && !pending.moveTo(a.certified, source, time.Now()) {
		return errors.New("too many connections with this certificate have not yet identified their switch")
	}
	return nil
}

// delayReconnect waits if the switch has reconnected too often, or returns an error if it would
// have to wait too long.
func (a *admission) delayReconnect(ctx context.Context, d openflow.DatapathID, from net.Addr) error {
	wait := a.reconnects.delay(d, hostOf(from), a.isConfigured(d), time.Now())
	if wait > maxReconnectDelay {
		return fmt.Errorf("it reconnects too often: try again in %v", wait.Truncate(time.Millisecond))
	}
	return tasks.Sleep(ctx, wait)
}

// errTooManySwitches is returned when the bound on sessions is reached.
var errTooManySwitches = errors.New("too many switches")

// admit counts the session of an identified switch until release is called. The bound applies only
// to switches that the configuration does not name: where identifiers are not bound to
// certificates, anybody can make them up.
func (a *admission) admit(d openflow.DatapathID) error {
	if a.sessions.Add(1) > int64(a.cfg.MaxSwitches) && !a.isConfigured(d) {
		a.release()
		return fmt.Errorf("%w: openflow.max_switches is %d, and network.switches does not name it", errTooManySwitches, a.cfg.MaxSwitches)
	}
	return nil
}

func (a *admission) release() { a.sessions.Add(-1) }

// isConfigured reports whether the configuration names the switch.
func (a *admission) isConfigured(d openflow.DatapathID) bool {
	_, named := a.cfg.Names[d]
	_, overridden := a.cfg.Overrides[d]
	return named || overridden && d != 0
}

// logRefusal logs why a switch is not let in.
func (a *admission) logRefusal(s *Switch, err error) {
	a.refusalLog.Warn(a.log, "switch refused", "switch", s.dpid, "from", s.conn.RemoteAddr(), "error", err)
}

// logSession logs the start or end of a session: always for switches that the configuration names,
// and at a bounded rate for all others.
func (a *admission) logSession(d openflow.DatapathID, msg string, args ...any) {
	args = append([]any{"switch", d}, args...)
	if a.isConfigured(d) {
		a.log.Info(msg, args...)
		return
	}
	a.sessionLog.Info(a.log, msg, args...)
}

// knownAddresses holds the addresses of switches whose sessions have been up within the last hour.
type knownAddresses struct {
	mu       sync.Mutex
	lastSeen map[netip.Addr]time.Time // when a switch last came up or left
}

const (
	// knownAddressAge is how long an address is remembered.
	knownAddressAge = time.Hour
	// maxKnownAddresses is the number of addresses that are remembered.
	maxKnownAddresses = 4096
)

// add remembers an address.
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

// has reports whether a switch was up from the address recently.
func (h *knownAddresses) has(a netip.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.lastSeen[a]
	return ok && now.Sub(at) <= knownAddressAge
}
