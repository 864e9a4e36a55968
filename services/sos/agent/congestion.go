package agent

import (
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// localRTT is the round trip below which a path counts as local. On such a path bbr's
// pacing costs three times the processor time and gains nothing.
const localRTT = time.Millisecond

// congestion holds the congestion controls that an agent chooses from. Once a socket has
// used bbr, the kernel's timers pace it forever, so all sockets start with local, and get
// another when their path is known to be long.
type congestion struct {
	long   string // for long paths: bbr where the kernel has it
	local  string // for local paths, and before the handshake
	system string // what the kernel gives a socket that asks for nothing
}

// findCongestion finds out which congestion controls this process may use.
func findCongestion() congestion {
	system := ""
	if b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		system = strings.TrimSpace(string(b))
	}
	first := func(names ...string) string {
		have := congestionControls()
		for _, n := range names {
			if slices.Contains(have, n) && mayUse(n) {
				return n
			}
		}
		return system
	}
	return congestion{long: first("bbr"), local: first("cubic", "reno"), system: system}
}

func mayUse(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return setCongestion(fd, name) == nil
}

// choose returns the congestion control for a path. A local path that loses segments is
// treated as a long one.
func (c congestion) choose(rtt time.Duration, loss float64) string {
	if rtt > 0 && rtt < localRTT && loss < 1e-4 {
		return c.local
	}
	return c.long
}

// longBacklog is how many unsent bytes a connection on a long path may hold at first.
const longBacklog = 1 << 20

// tune prepares a connection for the session.
func (m *congestionManager) tune(nc net.Conn) error {
	s := m.s
	t := s.transport()
	if err := s.marks.mark(nc); err != nil {
		return err
	}
	stats, err := t.Stats(nc)
	if err != nil {
		return err
	}
	name := s.params.CongestionControl
	if name == "" {
		name = s.agent.congestion.choose(stats.MinRTT, stats.loss())
	}
	// On a connection from the pool, bbr would rely on a model of the path from a time when
	// other connections had their shares of it.
	if name == s.agent.congestion.long {
		if err := m.restart(nc); err != nil {
			return err
		}
	}
	if err := t.Tune(nc, name); err != nil || stats.MinRTT < localRTT {
		return err
	}
	return t.Backlog(nc, max(longBacklog, s.agent.cfg.NotSentLowat))
}

// modelsPath reports whether the session uses bbr, which models the path.
func (m *congestionManager) modelsPath() bool {
	c := m.s.agent.congestion
	return c.long == "bbr" && (m.s.params.CongestionControl == "" || m.s.params.CongestionControl == c.long)
}

// restart makes a connection's congestion control for long paths start anew.
func (m *congestionManager) restart(nc net.Conn) error {
	t, c := m.s.transport(), m.s.agent.congestion
	if err := t.Steer(nc, c.local); err != nil {
		return err
	}
	return t.Steer(nc, c.long)
}

// loss returns the share of segments that a connection has retransmitted, or 0 until it has
// sent enough to tell.
func (s ConnStats) loss() float64 {
	if s.Sent < 2000 {
		return 0
	}
	return float64(s.Retransmits) / float64(s.Sent)
}
