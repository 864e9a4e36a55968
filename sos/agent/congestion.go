package agent

import (
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// light is below which round trip a path is taken for local. There bbr's pacing
// costs three times the processor time and wins nothing.
const light = time.Millisecond

// congestion are the congestion controls that an agent chooses from. A socket
// that has once had bbr is paced by the kernel's timers ever after, so all sockets
// begin with local, and get another when their path is known to be long.
type congestion struct {
	long   string // for long paths: bbr where the kernel has it
	local  string // for local ones, and before the handshake
	system string // what the kernel gives a socket that asks for nothing
}

// findCongestion tries what this process may use.
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

// pick chooses for a path. A local path that loses segments is treated as a long one.
func (c congestion) pick(rtt time.Duration, loss float64) string {
	if rtt > 0 && rtt < light && loss < 1e-4 {
		return c.local
	}
	return c.long
}

// longBacklog is what a connection on a long path may hold unsent at first.
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
		name = s.agent.congestion.pick(stats.MinRTT, stats.loss())
	}
	// On a connection from the pool bbr would believe what it knew of the path when
	// other connections had their shares of it.
	if name == s.agent.congestion.long {
		if err := m.afresh(nc); err != nil {
			return err
		}
	}
	if err := t.Tune(nc, name); err != nil || stats.MinRTT < light {
		return err
	}
	return t.Backlog(nc, max(longBacklog, s.agent.cfg.NotSentLowat))
}

// models says whether the session uses the congestion control that models the path.
func (m *congestionManager) models() bool {
	c := m.s.agent.congestion
	return c.long == "bbr" && (m.s.params.CongestionControl == "" || m.s.params.CongestionControl == c.long)
}

// afresh has the congestion control for long paths begin anew on a connection.
func (m *congestionManager) afresh(nc net.Conn) error {
	t, c := m.s.transport(), m.s.agent.congestion
	if err := t.Steer(nc, c.local); err != nil {
		return err
	}
	return t.Steer(nc, c.long)
}

// loss is the share of segments a connection has sent again, once it has sent
// enough to tell.
func (s LinkStats) loss() float64 {
	if s.Sent < 2000 {
		return 0
	}
	return float64(s.Retransmits) / float64(s.Sent)
}
