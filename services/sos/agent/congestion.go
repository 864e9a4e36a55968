package agent

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/units"
)

// localRTT is the round-trip time below which a path counts as local. On such a path bbr's pacing
// costs three times the processor time and gains nothing.
const localRTT = time.Millisecond

// congestion holds the names of the congestion controls that an agent chooses from. Once a socket
// has used bbr, the kernel's timers pace it forever. So all sockets start with local, and are
// switched to another when their path is known to be long.
type congestion struct {
	long   string // for long paths: bbr where the kernel has it
	local  string // for local paths, and before the handshake
	system string // the system's default
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

// longBacklog is the number of unsent bytes that a connection on a long path may hold at first.
const longBacklog = 1 << 20

// tune sets the DSCP, the congestion control and the socket options of a connection for the
// session.
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
	// On a connection from the pool, bbr would rely on a model of the path that it built while
	// other connections used shares of the path.
	if name == s.agent.congestion.long && !s.agent.pacers.of(s.pathOf(nc)).lengthened() {
		if err := m.restart(nc); err != nil {
			return err
		}
	}
	if err := t.Tune(nc, name); err != nil || stats.MinRTT < localRTT {
		return err
	}
	return t.Backlog(nc, max(longBacklog, s.agent.cfg.NotSentLowat))
}

// modelsPath reports whether the session's connections use bbr, which models the path.
func (m *congestionManager) modelsPath() bool {
	c := m.s.agent.congestion
	return c.long == "bbr" && (m.s.params.CongestionControl == "" || m.s.params.CongestionControl == c.long)
}

// restart makes the congestion control for long paths start anew on a connection.
func (m *congestionManager) restart(nc net.Conn) error {
	t, c := m.s.transport(), m.s.agent.congestion
	if err := t.Steer(nc, c.local); err != nil {
		return err
	}
	return t.Steer(nc, c.long)
}

// loss returns the share of a connection's segments that were retransmitted, or 0 until the
// connection has sent enough segments to tell.
func (s ConnStats) loss() float64 {
	if s.Sent < 2000 {
		return 0
	}
	return float64(s.Retransmits) / float64(s.Sent)
}

// congestionManager manages the congestion control of a session's connections to the peer.
type congestionManager struct {
	s   *session
	rtt atomic.Int64 // nanoseconds, on the slowest path, for whose chunks all later ones wait
}

// update reads the figures of the connections. It is called at each tick of the session.
func (m *congestionManager) update() {
	slowest := time.Duration(0)
	for _, c := range *m.s.conns.Load() {
		stats, err := m.s.stats(c.net)
		if err != nil {
			continue
		}
		if stats.MinRTT > localRTT {
			c.adaptBacklog(stats)
		}
		slowest = max(slowest, stats.RTT)
	}
	if slowest > 0 {
		m.rtt.Store(int64(slowest))
	}
}

// path holds the figures of the path to a peer.
type path struct {
	rtt        time.Duration
	loss       float64 // share of segments that were retransmitted
	rate       uint64  // bytes a second, over all connections
	congestion string
	buffer     int // bytes that one connection may have in flight
}

// path returns the combined figures of the session's connections. If these have sent too little to
// tell, it uses the figures of earlier sessions with the peer.
func (m *congestionManager) path() path {
	s := m.s
	p := path{congestion: s.params.CongestionControl, buffer: s.agent.buffer}
	if p.congestion == "" {
		p.congestion = s.agent.congestion.long
	}
	var sent, again uint64
	for _, c := range *s.conns.Load() {
		stats, err := s.stats(c.net)
		if err != nil {
			continue
		}
		if stats.MinRTT > 0 && (p.rtt == 0 || stats.MinRTT < p.rtt) {
			p.rtt = stats.MinRTT
		}
		sent += stats.Sent
		again += stats.Retransmits
		p.rate += stats.Rate
	}
	if sent > 2000 {
		p.loss = float64(again) / float64(sent)
		return p
	}
	if note, ok := s.agent.peers.recall(s.req.Peer.Addr); ok {
		p.loss = note.loss
		if p.rtt == 0 {
			p.rtt = note.rtt
		}
	}
	return p
}

const (
	shortPath = 2 * time.Millisecond
	segment   = 1448.0
	// Auto mode aims at headroom times the present rate of the path, but at least at minTarget and
	// at most at maxTarget, in bytes a second. The number of connections therefore grows with the
	// rate.
	minTarget, maxTarget = 125e6, 1.25e9
	headroom             = 4
)

// chooseConns returns the number of connections that the path needs in auto mode, which is at most
// most, and the reason.
func chooseConns(p path, most int) (n int, why string) {
	clamp := func(n int) int { return max(1, min(n, most)) }
	if p.rtt < shortPath {
		n = clamp(2)
		return n, fmt.Sprintf("round trip of %v: a short path needs no more", p.rtt.Round(10*time.Microsecond))
	}
	seconds := p.rtt.Seconds()
	aim := min(max(headroom*float64(p.rate), minTarget), maxTarget)
	need := aim * seconds
	byBuffer := int(math.Ceil(need / (float64(p.buffer) / 2)))
	if p.congestion == "bbr" {
		// One connection fills the path. A second continues while the first probes for the minimum
		// round trip. Each further connection mainly makes the chunks of the others wait for its
		// own.
		n = clamp(max(2, byBuffer))
		return n, fmt.Sprintf("bbr, round trip %v, loss %.3f %%: buffers of %s carry %.0f MB in flight",
			p.rtt.Round(time.Millisecond), 100*p.loss, units.FormatSize(int64(p.buffer)), need/1e6)
	}
	// Without a model of the path, each loss halves the window of one connection (Mathis et al.).
	// The other connections continue, so the more there are, the less one loss costs.
	n = max(8, byBuffer)
	if p.loss > 0 {
		each := segment / seconds * 1.22 / math.Sqrt(p.loss)
		n = max(n, int(math.Ceil(aim/each)))
	}
	n = clamp(n)
	return n, fmt.Sprintf("%s, round trip %v, loss %.3f %%: windows shrink with each loss",
		p.congestion, p.rtt.Round(time.Millisecond), 100*p.loss)
}
