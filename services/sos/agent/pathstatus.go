package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// status returns what is known about the paths, sorted by peer and port.
func (x *pacers) status(now time.Time) []agentapi.PathStatus {
	x.mu.Lock()
	all := maps.Clone(x.all)
	x.mu.Unlock()
	out := make([]agentapi.PathStatus, 0, len(all))
	for path, p := range all {
		if s, ok := p.status(path, now); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b agentapi.PathStatus) int {
		return cmp.Or(a.Peer.Compare(b.Peer), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// status describes the path, and reports whether it was ever used.
func (p *pacer) status(path netip.AddrPort, now time.Time) (s agentapi.PathStatus, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return s, false
	}
	bits := func(bytes float64) uint64 { return uint64(8 * bytes) }
	s = agentapi.PathStatus{
		Peer: path.Addr(), Port: path.Port(), Rate: bits(p.control.Rate()), Seen: p.shownAt,
		Doubtful: p.control.Rate() > 0 && p.doubtful(now),
		RTT:      agentapi.Duration(p.rtt), Phase: string(p.control.Phase()),
	}
	if p.running {
		s.Queue, s.Pace, s.Sessions = agentapi.Duration(p.queue), bits(p.control.Pace()), p.sending
	}
	return s, true
}
