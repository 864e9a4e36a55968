package agent

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// limit is the controller's limit of a path, in bytes a second. The zero value stands for none.
type limit struct {
	pace  float64 // +Inf while the capacity of the path's links is not known
	rate  float64 // what the path's links carry; zero if that is not known
	until time.Time
}

func checkLimits(in agentapi.Limits) error {
	if len(in.Limits) > agentapi.MaxLimits {
		return control.BadRequest("limits", "%d of them: want at most %d", len(in.Limits), agentapi.MaxLimits)
	}
	if in.Lifetime <= 0 || in.Lifetime > agentapi.MaxLimitLifetime {
		return control.BadRequest("lifetime", "%v: want more than 0s, at most %v", in.Lifetime, agentapi.MaxLimitLifetime)
	}
	for i, l := range in.Limits {
		switch field := fmt.Sprintf("limits[%d]", i); {
		case !l.Peer.IsValid() || l.Port == 0:
			return control.BadRequest(field, "no peer or no port")
		case l.Pace > agentapi.MaxPathRate || l.Rate > agentapi.MaxPathRate:
			return control.BadRequest(field, "%d and %d bits a second: want at most %.0f", l.Pace, l.Rate, agentapi.MaxPathRate)
		}
	}
	return nil
}

// setLimits replaces the limits of all paths. It returns the figures of the limited paths that have
// been used, up to the moment before the change.
func (x *pacers) setLimits(in agentapi.Limits, now time.Time) []agentapi.PathStatus {
	limits := map[*pacer]limit{}
	out := []agentapi.PathStatus{}
	for _, l := range in.Limits {
		path := netip.AddrPortFrom(l.Peer.Unmap(), l.Port)
		p := x.of(path)
		own := limit{pace: float64(l.Pace) / 8, rate: float64(l.Rate) / 8, until: now.Add(time.Duration(in.Lifetime))}
		if l.Pace == 0 {
			own.pace = math.Inf(1)
		}
		limits[p] = own
		if s, ok := p.status(path, now); ok {
			out = append(out, s)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.all {
		p.setLimit(limits[p], now)
	}
	return out
}

// setLimit sets or removes the controller's limit.
func (p *pacer) setLimit(l limit, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued = false
	if l == p.limit {
		return
	}
	p.limit = l
	p.applyLimit(now)
	select {
	case p.wake <- struct{}{}: // the connections get their shares of the new pace at once
	default:
	}
}

// applyLimit applies the limit to the control, if there is one. The links' rate is used only if the
// path has not shown its own to this agent.
func (p *pacer) applyLimit(now time.Time) {
	if p.control == nil {
		return
	}
	before := p.control.Pace()
	if now.Before(p.limit.until) {
		told := p.limit.rate
		if p.declared.IsZero() && !p.shownAt.IsZero() {
			told = 0
		}
		if told > p.control.Rate() {
			p.declared = now
		}
		p.control.SetLimit(p.limit.pace, told)
	} else {
		p.limit = limit{}
		p.control.RemoveLimit()
	}
	if p.active && p.control.Pace() > fasterPace*before {
		p.restart()
	}
}
