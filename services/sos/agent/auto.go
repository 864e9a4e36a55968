package agent

import (
	"fmt"
	"math"
	"time"
)

// path is what is known about the path to a peer.
type path struct {
	rtt        time.Duration
	loss       float64 // share of segments that were retransmitted
	rate       uint64  // bytes a second, over all connections
	congestion string
	buffer     int // bytes one connection may have in flight
}

// path returns the combined figures of the session's connections, with those of earlier
// sessions where the connections are too young to tell.
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
	// Auto mode aims at a multiple of the rate that the path carries already, in bytes a
	// second within these bounds, so that the number of connections grows with the rate.
	minTarget, maxTarget = 125e6, 1.25e9
	headroom             = 4
)

// chooseConns returns how many connections the path needs in auto mode, at most most, and
// why.
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
		// One connection fills the path. A second goes on while the first probes for the
		// minimum round trip. Each further one mainly makes the others' chunks wait for its
		// own.
		n = clamp(max(2, byBuffer))
		return n, fmt.Sprintf("bbr, round trip %v, loss %.3f %%: buffers of %d MiB carry %.0f MB in flight",
			p.rtt.Round(time.Millisecond), 100*p.loss, p.buffer>>20, need/1e6)
	}
	// Without a model of the path, each loss halves one window (Mathis et al.). The other
	// connections continue, so the more there are, the less one loss costs.
	n = max(8, byBuffer)
	if p.loss > 0 {
		each := segment / seconds * 1.22 / math.Sqrt(p.loss)
		n = max(n, int(math.Ceil(aim/each)))
	}
	n = clamp(n)
	return n, fmt.Sprintf("%s, round trip %v, loss %.3f %%: windows shrink with each loss",
		p.congestion, p.rtt.Round(time.Millisecond), 100*p.loss)
}
