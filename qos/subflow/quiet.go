package subflow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/way"
)

const (
	// mostUnplaced is how many packets with the mark that are not placed may come in by one
	// port in a second. With more its marked packets end at the switch, for quietFor.
	mostUnplaced = 200
	quietFor     = 10 * time.Second
	// maxCounted bounds the ports that are counted, and those that are quiet.
	maxCounted = 1024
)

// counts are the packets with the mark that were not placed, by the port that they came in by.
type counts struct {
	mu    sync.Mutex
	since time.Time // the second began
	of    map[network.PortRef]int
	quiet map[network.PortRef]bool
}

func newCounts() *counts {
	return &counts{of: map[network.PortRef]int{}, quiet: map[network.PortRef]bool{}}
}

// add counts one, and says whether the port is to be quiet from now on.
func (c *counts) add(at network.PortRef, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= time.Second {
		clear(c.of)
		c.since = now
	}
	n, counted := c.of[at]
	if c.quiet[at] || !counted && len(c.of) >= maxCounted {
		return false
	}
	c.of[at] = n + 1
	if n < mostUnplaced || len(c.quiet) >= maxCounted {
		return false
	}
	c.quiet[at] = true
	return true
}

// over has a port counted again.
func (c *counts) over(at network.PortRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.quiet, at)
}

// unplaced takes note of a packet with the mark that goes by default forwarding.
func (s *Service) unplaced(at network.PortRef) {
	if !s.counts.add(at, time.Now()) {
		return
	}
	if !s.Network.IsEdge(at) || !s.tasks.Start(func(ctx context.Context) { s.silence(ctx, at) }) {
		s.counts.over(at)
	}
}

// silence has the switch drop marked packets of a port for a while. Connections keep the
// subflows that they have.
func (s *Service) silence(ctx context.Context, at network.PortRef) {
	defer s.counts.over(at)
	key := fmt.Sprintf("quiet/%v", at)
	p := network.Program{}
	for _, fields := range marked(s.DSCP, way.SeesTCPFlags(s.Network, at.Switch)) {
		p.Rules = append(p.Rules, network.Rule{
			Switch: at.Switch, Stage: network.StageRoute, Offset: rule.RouteSubflowQuiet, Leased: true,
			Match: openflow.MustMatch(append(fields, openflow.InPort(at.Port))...),
		})
	}
	s.noisy.Warn(s.Log, "a port sends more joins than can be placed: they are dropped for a while", "port", at, "for", quietFor)
	s.metrics.quiet.Inc()
	bounded, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	if err := s.Rules.Apply(bounded, key, p, network.ApplyOptions{}); err != nil {
		s.noisy.Warn(s.Log, "joins of a port are not dropped", "port", at, "error", err)
	}
	_ = tasks.Sleep(ctx, quietFor)
	clean, cancel := s.placer.cleanUp()
	defer cancel()
	if err := s.Rules.Remove(clean, key); err != nil {
		s.noisy.Warn(s.Log, "joins of a port stay dropped", "port", at, "error", err)
	}
}
