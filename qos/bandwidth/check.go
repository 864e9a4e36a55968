package bandwidth

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/way"
	"github.com/sluice-net/sluice/service"
)

const (
	// pressedFor is how many readings in a row must show that a link cannot keep a
	// promise, and tolerance the part of the rate, in percent, that it may lack.
	pressedFor = 2
	tolerance  = 5
)

// gone says why a flow is over because a host of it is elsewhere now, or nothing. A host
// that moves has left when nobody leads it any more; if nobody has led it since the start,
// somebody may yet.
func (p *planner) gone(f *flow) string {
	if f.roams() {
		_, leads := p.Network.Anchored(f.Device)
		f.mu.Lock()
		defer f.mu.Unlock()
		led := f.led
		if f.led = led || leads; led && !leads {
			return "its host has left"
		}
		return ""
	}
	if way.Moved(p.Network, f.Header, f.From, f.To) {
		return "a host has moved"
	}
	return ""
}

// broken says why the flow's path does not work, or nothing.
func (p *planner) broken(f *flow, now time.Time) string {
	if f.roams() {
		if hops, led := p.way(f); led && !slices.Equal(hops, f.now().Hops) {
			return "its host has another way"
		}
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	why, certain := service.MissingLink(p.Network, f.Hops)
	if !f.health.Lost(why, certain, now) {
		return ""
	}
	return why
}

// oversubscribed finds the link that cannot keep what the flow was promised, and for how many
// readings in a row there has been one.
func (p *planner) oversubscribed(f *flow) (at network.PortRef, free uint64, readings int) {
	now := f.now()
	if now.State != StateAccepted || now.closed {
		return at, 0, 0
	}
	for _, share := range shares(now.Hops, f.Rate, f.Reverse) {
		if p.Network.IsEdge(share.Link) {
			continue
		}
		if free = p.Book.Left(share.Link, f.promise()); free < share.Rate-share.Rate*tolerance/100 {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.oversubscribed++
			return share.Link, free, f.oversubscribed
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.oversubscribed, f.pressure = 0, ""
	return at, 0, 0
}
