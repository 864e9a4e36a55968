package agent

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// minShares holds the share of a path down to which sessions give way to other traffic.
var minShares = map[agentapi.Share]float64{"": 0.25, agentapi.SharePolite: 0.25, agentapi.ShareEqual: 0.5}

// minShare returns the largest such share of the sessions that send, because a path has
// only one pace.
func (p *pacer) minShare() float64 {
	most := minShares[agentapi.SharePolite]
	for c, own := range p.conns {
		if own.waiting {
			most = max(most, minShares[c.s.params.Share])
		}
	}
	return most
}

// weight returns the weight of a session among those on its path.
func (s *session) weight() float64 { return float64(max(s.params.Weight, 1)) }

// divide gives each sending session a share of the pace by its weight, and gives to the
// others what sessions that have less to send do not need.
func (p *pacer) divide(now time.Time) {
	all := map[*session][]*conn{}
	for c, own := range p.conns {
		if own.waiting || now.Sub(own.busy) < 2*max(p.rtt, idleInterval) {
			all[c.s] = append(all[c.s], c)
		}
	}
	demands := make([]demand, 0, len(all))
	p.sending, p.weight = 0, 0
	for s, conns := range all {
		d := demand{weight: s.weight()}
		for _, c := range conns {
			own := p.conns[c]
			if d.wants += 1.25 * own.rate; own.waiting {
				d.wants = math.Inf(1)
			}
		}
		if math.IsInf(d.wants, 1) {
			p.sending++
			p.weight += d.weight
		}
		demands = append(demands, d)
	}
	share := maxMinShare(p.control.Pace(), demands)
	for s, conns := range all {
		p.split(conns, min(share*s.weight(), p.control.Pace())) // the share exceeds the pace if nobody needs more
	}
}

// split divides a session's share among its connections. A connection that sends much less
// than its part, as with bbr while it probes for the minimum round trip, leaves the rest to
// the others meanwhile.
func (p *pacer) split(conns []*conn, share float64) {
	equal := share / float64(len(conns))
	demands := make([]demand, len(conns))
	full := false
	for i, c := range conns {
		demands[i] = demand{math.Inf(1), 1}
		if rate := p.conns[c].rate; rate < equal/2 {
			demands[i].wants = max(2*rate, equal/8)
		} else {
			full = true
		}
	}
	most := equal
	if full {
		most = maxMinShare(share, demands)
	}
	for _, c := range conns {
		p.setPace(c, p.conns[c], most)
	}
}

// setPace sets a connection's pace, if it has changed.
func (p *pacer) setPace(c *conn, own *pacedConn, pace float64) {
	if math.Abs(pace-own.pace) < paceStep*own.pace {
		return
	}
	if c.s.transport().Pace(c.net, pace) == nil {
		own.pace = pace
	}
}

// demand is how much somebody wants of a whole, and a weight above zero.
type demand struct{ wants, weight float64 }

// maxMinShare returns the max-min fair share of a whole for a weight of one: the largest
// that all may have when each takes no more than it wants.
func maxMinShare(whole float64, all []demand) float64 {
	share := 0.0
	for {
		left, weight := whole, 0.0
		for _, d := range all {
			if d.wants < share*d.weight {
				left -= d.wants
			} else {
				weight += d.weight
			}
		}
		if weight == 0 {
			return whole
		}
		next := left / weight
		if next <= share*1.001 {
			return next
		}
		share = next
	}
}
