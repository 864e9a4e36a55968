package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// counterDelay is how long after a packet hardware may count it, and counterRetries how often
	// the counters are read within that time.
	counterDelay   = 3 * time.Second
	counterRetries = 3
)

// count passes to both directions of a link the number of frames that the switches have counted
// since the counters in before were read. If a counter has not changed, count reads it again,
// because hardware updates its counters only from time to time.
func (d *Doctor) count(ctx context.Context, before map[PortRef]openflow.PortStats, forward, backward *linkprobe.Direction) {
	for range counterRetries {
		after, unchanged := d.countPorts(ctx, forward.From, backward.From), false
		for _, w := range []*linkprobe.Direction{forward, backward} {
			c := linkprobe.Counters{
				Left:    counterDelta(before, after, w.From, func(p openflow.PortStats) uint64 { return p.TxPackets }),
				Came:    counterDelta(before, after, w.To, func(p openflow.PortStats) uint64 { return p.RxPackets }),
				Matched: d.countProbes(ctx, w),
			}
			w.Counted(c)
			for _, x := range []*uint64{c.Left, c.Came, c.Matched} {
				unchanged = unchanged || x != nil && *x == 0
			}
		}
		if !unchanged || tasks.Sleep(ctx, counterDelay/counterRetries) != nil {
			return
		}
	}
}

// counterDelta returns the increase of a port's counter between before and after, or nil if it is
// unknown.
func counterDelta(before, after map[PortRef]openflow.PortStats, at PortRef, counter func(openflow.PortStats) uint64) *uint64 {
	b, okBefore := before[at]
	a, okAfter := after[at]
	if !okBefore || !okAfter || counter(a) < counter(b) {
		return nil
	}
	d := counter(a) - counter(b)
	return &d
}

// countPorts reads the counters of ports. It leaves out ports whose switch does not report them.
func (d *Doctor) countPorts(ctx context.Context, ports ...PortRef) map[PortRef]openflow.PortStats {
	out := map[PortRef]openflow.PortStats{}
	for _, at := range ports {
		s, ok := d.switches.get(at.Switch)
		if !ok {
			continue
		}
		ports, done, err := ask[openflow.PortStatsReply](ctx, s.ch, &openflow.PortStatsRequest{Port: at.Port})
		if err != nil {
			continue
		}
		for p := range ports {
			if p.Port == at.Port {
				out[at] = *p
			}
		}
		done()
	}
	return out
}

// countProbes returns how many frames the rule for one direction's probes has matched, or nil if
// the switch does not report it.
func (d *Doctor) countProbes(ctx context.Context, w *linkprobe.Direction) *uint64 {
	s, ok := d.switches.get(w.To.Switch)
	if !ok {
		return nil
	}
	asked := openflow.AllFlows()
	asked.Match = probesOf(w)
	flows, done, err := askFlows(ctx, s.ch, asked)
	if err != nil {
		return nil
	}
	defer done()
	var seen *uint64
	for r := range flows {
		if r.Packets != ^uint64(0) { // not counted (OpenFlow 1.3, section A.3.5.2)
			seen = &r.Packets
		}
	}
	return seen
}
