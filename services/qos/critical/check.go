package critical

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/flowpath"
)

// endReason returns the reason why a flow is over, if one of its hosts has moved or left, or "". A
// mobile host has left if a service placed it and none does any more. If none has placed it since
// the controller started, the flow continues, because a service may still do so.
func (p *planner) endReason(f *flow) string {
	if f.isMobile() {
		_, leads := p.Network.Anchored(f.Device)
		f.mu.Lock()
		defer f.mu.Unlock()
		led := f.anchored
		if f.anchored = led || leads; led && !leads {
			return "its host has left"
		}
		return ""
	}
	if flowpath.HostMoved(p.Network, f.Header, f.From, f.To) {
		return "a host has moved"
	}
	return ""
}

// broken returns the reason why the flow's path does not work, or "".
func (p *planner) broken(f *flow, now time.Time) string {
	if f.isMobile() {
		if hops, ok := p.mobilePath(f); ok && !slices.Equal(hops, f.status().Hops) {
			return "its host has another path"
		}
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	why, certain := kit.MissingLink(p.Network, f.Hops)
	if !f.health.Update(why, certain, now) {
		return ""
	}
	return why
}

// oversubscribed returns a link that cannot keep the flow's promise, the reason, and the number of
// consecutive readings that have shown such a link. No promise is certain on a full link that also
// carries traffic without a promise: the link drops whatever arrives last, whoever sends it.
func (p *planner) oversubscribed(f *flow) (at network.PortRef, why string, readings int) {
	now := f.status()
	if now.State != StateAccepted || now.closed {
		return at, "", 0
	}
	f.mu.Lock()
	unmetered := f.Unmetered[forward] // without a meter, its own traffic is not told from that of others
	f.mu.Unlock()
	for _, share := range f.shares(now.Hops) {
		if share.Rate == 0 || p.Network.IsEdge(share.Link) || p.Book.Use(share.Link).Capacity == 0 {
			continue // nothing is known about a switch that is not connected
		}
		free := p.Book.MaxAvailable(share.Link, f.promiseKey())
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
