package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/openflow"
)

// accept takes connections until ctx ends or the listener is closed.
func (n *Network) accept(ctx context.Context, l net.Listener, wg *sync.WaitGroup) error {
	patient := listen.New(l, func(err error) {
		n.greetings.Warn(n.log, "cannot accept switches for now", "error", err)
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
		n.greet(ctx, conn, wg)
	}
}

// greet has a connection served if there is a seat for it: one of those of strangers, or
// of those of addresses that switches have come from, which strangers elsewhere take not.
func (n *Network) greet(ctx context.Context, conn net.Conn, wg *sync.WaitGroup) {
	among := n.strangers
	now := time.Now()
	if n.homes.known(hostOf(conn.RemoteAddr()), now) {
		among = n.expected
	}
	s := among.take(conn, now)
	if s == nil {
		n.greetings.Warn(n.log, "connection refused: too many that have not said which switch they are of", "from", conn.RemoteAddr())
		_ = conn.Close()
		return
	}
	if n.cfg.TLS != nil {
		conn = tlsconn.Server(conn, n.cfg.TLS)
	}
	wg.Go(func() { n.serve(ctx, conn, s) })
}

// errFull says that no more switches are let in.
var errFull = errors.New("too many switches")

// admit counts a session whose switch is known now, which has to be released. The bound is
// for switches that the configuration does not tell of: anybody may make up identifiers
// where certificates are not bound to them.
func (n *Network) admit(d openflow.DatapathID) error {
	if n.sessions.Add(1) > int64(n.cfg.MaxSwitches) && !n.named(d) {
		n.release()
		return fmt.Errorf("%w: openflow.max_switches is %d, and network.switches does not tell of it", errFull, n.cfg.MaxSwitches)
	}
	return nil
}

// named reports whether the configuration tells of a switch.
func (n *Network) named(d openflow.DatapathID) bool {
	_, named := n.cfg.Names[d]
	_, told := n.cfg.Overrides[d]
	return named || told && d != 0
}

// tellSession writes what became of a session: always of a switch that the configuration
// tells of, and of others as long as they are not too many.
func (n *Network) tellSession(d openflow.DatapathID, msg string, args ...any) {
	args = append([]any{"switch", d}, args...)
	if n.named(d) {
		n.log.Info(msg, args...)
		return
	}
	n.churn.Info(n.log, msg, args...)
}

func (n *Network) release() { n.sessions.Add(-1) }

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
