package subflows

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
)

const (
	// maxUnplaced is the number of marked packets per second that may come in by one port without
	// being placed. If there are more, the switch drops the port's marked packets for dropTime.
	maxUnplaced = 200
	dropTime    = 10 * time.Second
	// maxCounted bounds the number of ports that are counted, and the number of ports whose marked
	// packets are dropped.
	maxCounted = 1024
)

// joinCounter counts the marked packets that were not placed, by the port by which they came in.
type joinCounter struct {
	mu       sync.Mutex
	since    time.Time // start of the current second
	of       map[network.PortRef]int
	dropping map[network.PortRef]bool
}

func newJoinCounter() *joinCounter {
	return &joinCounter{of: map[network.PortRef]int{}, dropping: map[network.PortRef]bool{}}
}

// add counts one packet, and reports whether the caller has to drop marked packets of the port from
// now on.
func (c *joinCounter) add(at network.PortRef, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= time.Second {
		clear(c.of)
		c.since = now
	}
	n, counted := c.of[at]
	if c.dropping[at] || !counted && len(c.of) >= maxCounted {
		return false
	}
	c.of[at] = n + 1
	if n < maxUnplaced || len(c.dropping) >= maxCounted {
		return false
	}
	c.dropping[at] = true
	return true
}

// resume makes packets of a port be counted again after they were dropped.
func (c *joinCounter) resume(at network.PortRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dropping, at)
}

// countUnplaced counts a marked packet that is left to default forwarding.
func (s *Service) countUnplaced(at network.PortRef) {
	if !s.counts.add(at, time.Now()) {
		return
	}
	if !s.Network.IsEdge(at) || !s.tasks.Start(func(ctx context.Context) { s.dropJoins(ctx, at) }) {
		s.counts.resume(at)
	}
}

// dropJoins makes the switch drop marked packets of a port for dropTime. Connections keep
// the subflows that they have.
func (s *Service) dropJoins(ctx context.Context, at network.PortRef) {
	defer s.counts.resume(at)
	key := fmt.Sprintf("quiet/%v", at)
	p := network.Program{}
	for _, fields := range marked(s.DSCP, flowpath.MatchesTCPFlags(s.Network, at.Switch)) {
		p.Rules = append(p.Rules, network.Rule{
			Switch: at.Switch, Stage: network.StageRoute, Offset: rule.RouteSubflowQuiet, Leased: true,
			Match: openflow.MustMatch(append(fields, openflow.InPort(at.Port))...),
		})
	}
	s.warnLimit.Warn(s.Log, "a port sends more joins than can be placed: they are dropped for a while", "port", at, "for", dropTime)
	s.metrics.quiet.Inc()
	bounded, cancel := context.WithTimeout(ctx, dropTime)
	defer cancel()
	if err := s.Rules.Apply(bounded, key, p, network.ApplyOptions{}); err != nil {
		s.warnLimit.Warn(s.Log, "joins of a port are not dropped", "port", at, "error", err)
	}
	_ = tasks.Sleep(ctx, dropTime)
	clean, cancel := s.placer.cleanUp()
	defer cancel()
	if err := s.Rules.Remove(clean, key); err != nil {
		s.warnLimit.Warn(s.Log, "joins of a port stay dropped", "port", at, "error", err)
	}
}

// These are the possible outcomes for a SYN with the mark, as labels of the metrics.
const (
	outcomePlaced  = "placed"
	outcomeFailed  = "failed"       // no path was found, or a switch refused its rules
	outcomePlain   = "not-a-join"   // plain TCP, a first subflow, or a fallback to TCP
	outcomeInside  = "inside"       // the port is not one of a host
	outcomeForged  = "forged"       // its sender is connected to another port
	outcomeUnknown = "unknown-host" // the place of its sender or receiver is not known
	outcomeMoves   = "mobile"       // the mobile host's service chooses the path
	outcomeMost    = "most-of-port" // the limit of subflows from that port is reached
	outcomeFull    = "most-in-all"  // the limit of all subflows is reached
	outcomeBusy    = "busy"         // too many are being placed
)

// marked returns the match fields of SYNs with the mark, or of all segments with the mark if the
// switch does not match TCP flags.
func marked(dscp uint8, seesTCPFlags bool) (all [][]openflow.OXM) {
	for _, of := range []uint16{packet.TypeIPv4, packet.TypeIPv6} {
		fields := []openflow.OXM{openflow.EthType(of), openflow.IPDSCP(dscp), openflow.IPProto(packet.ProtoTCP)}
		if seesTCPFlags {
			fields = append(fields, openflow.TCPFlags(packet.SYN, packet.SYN|packet.ACK))
		}
		all = append(all, fields)
	}
	return all
}
