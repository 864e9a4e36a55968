package agent

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"time"
)

// A session opens the connections that only cubic needs when it has carried so
// many bytes and the first trial is near: most sessions are short.
const (
	spareAfter = 1 << 20
	spareAhead = time.Second
)

// steerable says whether the session's congestion control is the agent's choice,
// and there is one.
func (s *session) steerable() bool {
	return s.params.CongestionControl == "" && s.agent.congestion.fill != ""
}

// spares is how many connections the session opens so that cubic could fill the
// path: none yet when it has carried little.
func (s *session) spares(rtt time.Duration) int {
	if !s.steerable() || rtt < shortPath || s.out.bytes.Load()+s.in.bytes.Load() < spareAfter || time.Since(s.started) < firstTrial-spareAhead {
		return 0
	}
	return s.agent.cfg.AutoConnections
}

// steer has the session's congestion control chosen by what its connections
// show. Under bbr all but a few rest.
func (s *session) steer() {
	l := s.seen
	if !s.steerable() || l.base < shortPath {
		return
	}
	x := &s.steering
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
		if err := s.setCongestion(c, control); err != nil && !errors.Is(err, net.ErrClosed) {
			x.fail(l, err.Error())
			break // the next look sets all of them back
		}
	}
	s.agent.metrics.switches.Add(float64(x.switches - before))
	s.out.use(conns, s.width(len(conns)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control, s.switches, s.whyControl = control, x.switches, x.why
}

// setCongestion changes a connection's congestion control. Bbr that is set on
// top of bbr begins anew: it has stayed within what the other connections left,
// and they rest now.
func (s *session) setCongestion(c *conn, control string) error {
	t := s.agent.transport(s)
	if c.congestion == control {
		if err := t.Steer(c.net, s.agent.congestion.fill); err != nil {
			return err
		}
	}
	c.congestion = control
	return t.Steer(c.net, control)
}

// width is how many of the open connections take chunks.
func (s *session) width(open int) int {
	if s.params.Connections > 0 || s.steering.filling {
		return open
	}
	n, _ := choose(s.path(), s.agent.cfg.AutoConnections)
	return max(n, len(s.ports()), s.params.Paths)
}
