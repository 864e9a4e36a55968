package agent

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// congestionManager looks at a session's connections to the peer, and chooses how many
// there are and what congestion control they use.
type congestionManager struct {
	s        *session
	rtt      atomic.Int64 // of the slowest path: no chunk is in order before it is
	seen     look         // the beat's
	steering steering     // the beat's

	mu       sync.Mutex // guards what is told of the choice
	use      string     // congestion control in use, where it is chosen
	switches int
	why      string
}

// A session opens the connections that only cubic needs when it has carried so
// many bytes and the first trial is near: most sessions are short.
const (
	spareAfter = 1 << 20
	spareAhead = time.Second
)

// watch looks at the connections.
func (m *congestionManager) watch(now int64) {
	slowest := time.Duration(0)
	most := uint32(0) // segments that one connection has carried since the last look
	l := &m.seen
	l.at, l.idle, l.conns = time.Duration(now), true, 0
	for _, c := range *m.s.conns.Load() {
		stats, err := m.s.stats(c.net)
		if err != nil {
			continue
		}
		if stats.MinRTT > light {
			c.adapt(stats)
		}
		slowest = max(slowest, stats.RTT)
		if arrived := l.add(c, stats); arrived >= most {
			most, l.rtt = arrived, stats.RTT
		}
	}
	if slowest > 0 {
		m.rtt.Store(int64(slowest))
	}
	m.steer()
}

// steerable says whether the session's congestion control is the agent's choice,
// and there is one.
func (m *congestionManager) steerable() bool {
	s := m.s
	return s.params.CongestionControl == "" && s.agent.congestion.fill != ""
}

// spares is how many connections the session opens so that cubic could fill the
// path: none yet when it has carried little.
func (m *congestionManager) spares(rtt time.Duration) int {
	s := m.s
	if !m.steerable() || rtt < shortPath || s.out.bytes.Load()+s.in.bytes.Load() < spareAfter || time.Since(s.started) < firstTrial-spareAhead {
		return 0
	}
	return s.agent.cfg.AutoConnections
}

// steer has the session's congestion control chosen by what its connections
// show. Under bbr all but a few rest.
func (m *congestionManager) steer() {
	l, s := m.seen, m.s
	if !m.steerable() || l.base < shortPath {
		return
	}
	x := &m.steering
	before := x.switches
	anew := x.note(l)
	control := s.agent.congestion.long
	if x.filling {
		control = s.agent.congestion.fill
	}
	if anew {
		s.agent.log.Info("congestion control", "session", s.req.ID, "use", control, "why", x.why)
	}
	conns := slices.Clone(*s.conns.Load())
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.index, b.index) })
	for _, c := range conns {
		if c.congestion == control && !anew {
			continue
		}
		if err := m.set(c, control); err != nil && !errors.Is(err, net.ErrClosed) {
			x.fail(l, err.Error())
			break // the next look sets all of them back
		}
	}
	s.agent.metrics.switches.Add(float64(x.switches - before))
	s.out.use(conns, m.width(len(conns)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use, m.switches, m.why = control, x.switches, x.why
}

// set changes a connection's congestion control. Bbr that is set on top of bbr begins
// anew: it has stayed within what the other connections left, and they rest now.
func (m *congestionManager) set(c *conn, control string) error {
	t := m.s.transport()
	if c.congestion == control {
		if err := t.Steer(c.net, m.s.agent.congestion.fill); err != nil {
			return err
		}
	}
	c.congestion = control
	return t.Steer(c.net, control)
}

// width is how many of the open connections take chunks.
func (m *congestionManager) width(open int) int {
	s := m.s
	if s.params.Connections > 0 || m.steering.filling {
		return open
	}
	n, _ := choose(m.path(), s.agent.cfg.AutoConnections)
	return max(n, len(s.ports()), s.params.Paths)
}
