package latency

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

const (
	// slowFor is how long a link has to be slower than it was, with little traffic, to be
	// taken for another line: longer than a measurement shows a queue that has gone.
	slowFor = time.Minute
	// forgetLink is after what time a link that has gone is forgotten.
	forgetLink = time.Hour
)

// baseline knows what links take without a queue. Classes are admitted by that: they do not
// stand in the queue of other traffic, which is in what is measured. Its methods may be
// called concurrently.
type baseline struct {
	mu    sync.Mutex
	links map[topology.PortRef]*baselineLink
}

// baselineLink is a link as baseline knows it.
type baselineLink struct {
	to    topology.PortRef
	least time.Duration
	// idle is the least since the link has had little traffic, which it has had from
	// since on; since is zero while it has much.
	idle  time.Duration
	since time.Time
	seen  time.Time
}

// note takes the latest measurements.
func (c *baseline) note(t *topology.Topology, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		c.links = map[topology.PortRef]*baselineLink{}
	}
	for _, l := range t.Links {
		if l.Latency <= 0 {
			continue
		}
		k := c.links[l.From]
		if k == nil || k.to != l.To {
			k = &baselineLink{to: l.To, least: l.Latency}
			c.links[l.From] = k
		}
		k.note(l, now)
	}
	for at, k := range c.links {
		if now.Sub(k.seen) >= forgetLink {
			delete(c.links, at)
		}
	}
}

func (k *baselineLink) note(l topology.Link, now time.Time) {
	k.seen = now
	k.least = min(k.least, l.Latency)
	switch {
	case l.Capacity == 0 || l.Used > l.Capacity/2: // a queue may stand before it
		k.since = time.Time{}
		return
	case k.since.IsZero():
		k.since, k.idle = now, l.Latency
	}
	k.idle = min(k.idle, l.Latency)
	if now.Sub(k.since) >= slowFor {
		k.least, k.idle, k.since = k.idle, l.Latency, now
	}
}

// topology is a network with the latency that its links have without a queue.
func (c *baseline) topology(t *topology.Topology) *topology.Topology {
	c.mu.Lock()
	defer c.mu.Unlock()
	links := slices.Clone(t.Links)
	for i, l := range links {
		if k := c.links[l.From]; k != nil && k.to == l.To {
			links[i].Latency = k.least
		}
	}
	return topology.New(t.Version, t.Switches, links)
}
