package bandwidth

import (
	"fmt"
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

// oversubscribed returns a link that cannot keep what the flow was promised, why, and for how
// many readings in a row there has been one. Of a full link with traffic that nobody has been
// promised anything for, no promise is sure: it drops what comes last, whoever sends that.
func (p *planner) oversubscribed(f *flow) (at network.PortRef, why string, readings int) {
	now := f.now()
	if now.State != StateAccepted || now.closed {
		return at, "", 0
	}
	f.mu.Lock()
	unmetered := f.Unmetered[there] // then its own traffic is not told from that of others
	f.mu.Unlock()
	for _, share := range f.shares(now.Hops) {
		if share.Rate == 0 || p.Network.IsEdge(share.Link) || p.Book.Use(share.Link).Capacity == 0 {
			continue // of a switch that is not connected nothing is known
		}
		free := p.Book.Left(share.Link, f.promise())
		switch {
		case free < share.Rate-share.Rate*tolerance/100:
			why = fmt.Sprintf("the link from %v has %d bit/s left for it", share.Link, free)
		case !unmetered && p.Book.Full(share.Link):
			others, _ := p.Book.Others(share.Link)
			why = fmt.Sprintf("the link from %v is full, with %d bit/s of traffic without a promise", share.Link, others)
		default:
			continue
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.oversubscribed++
		return share.Link, why, f.oversubscribed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.oversubscribed, f.pressure = 0, ""
	return at, "", 0
}
