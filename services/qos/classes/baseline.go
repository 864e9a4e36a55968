package classes

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

const (
	// slowTime is how long a link with little traffic has to be slower than before until its
	// baseline is raised. It is longer than measurements still show a queue that has drained.
	slowTime = time.Minute
	// forgetAfter is the time after which a link that has disappeared is forgotten.
	forgetAfter = time.Hour
)

// baseline holds the latency of links without a queue. Classes are admitted by that latency,
// because their packets do not wait in the queue of other traffic; measured latencies include that
// queue. Its methods may be called concurrently.
type baseline struct {
	mu    sync.Mutex
	links map[topology.PortRef]*baselineLink
}

// baselineLink is what baseline knows about a link.
type baselineLink struct {
	to    topology.PortRef
	least time.Duration
	// since is the time from which the link has had little traffic; zero while it has much. idle is
	// the least latency measured from then on.
	idle  time.Duration
	since time.Time
	seen  time.Time
}

// update records the latest measured latencies of the topology's links.
func (c *baseline) update(t *topology.Topology, now time.Time) {
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
		k.update(l, now)
	}
	for at, k := range c.links {
		if now.Sub(k.seen) >= forgetAfter {
			delete(c.links, at)
		}
	}
}

func (k *baselineLink) update(l topology.Link, now time.Time) {
	k.seen = now
	k.least = min(k.least, l.Latency)
	switch {
	case l.Capacity == 0 || l.Used > l.Capacity/2: // the link may have a queue
		k.since = time.Time{}
		return
	case k.since.IsZero():
		k.since, k.idle = now, l.Latency
	}
	k.idle = min(k.idle, l.Latency)
	if now.Sub(k.since) >= slowTime {
		k.least, k.idle, k.since = k.idle, l.Latency, now
	}
}

// topology returns a copy of t in which each link has its latency without a queue.
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
