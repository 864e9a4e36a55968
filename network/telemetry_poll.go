package network

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// pollCounters reads the counters of all of the switch's ports: once immediately, and then at the
// same times as the counters of all other switches. So the packets that one end of a link has sent
// can be compared with those that the other end has received. In between, and whichever source of
// measurements is configured, it also reads the counters when probes of a link are missing.
func (s *Switch) pollCounters(ctx context.Context) {
	polled := s.n.cfg.Measure != MeasureSFlow
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.countersWanted:
			s.readCounters(ctx, s.n.linkProber.observe)
		case <-timer.C:
			if polled {
				s.readCounters(ctx, func(x stats.Sample) { s.n.traffic.rates.Observe(x) })
				timer.Reset(s.n.traffic.untilReading())
			}
		}
	}
}

// readCounters reads the counters of all ports and calls observe for each. If it fails, the next
// rate covers both intervals.
func (s *Switch) readCounters(ctx context.Context, observe func(stats.Sample)) {
	samples, err := s.portCounters(ctx)
	if err != nil {
		return
	}
	for _, x := range samples {
		observe(x)
	}
}

// portCounters requests the counters of all ports from the switch.
func (s *Switch) portCounters(ctx context.Context) ([]stats.Sample, error) {
	r, err := s.ch.exchange(ctx, &openflow.MultipartRequest{Body: &openflow.PortStatsRequest{Port: openflow.PortAny}})
	if err != nil {
		return nil, err
	}
	defer r.release()
	var out []stats.Sample
	for _, part := range r.parts {
		m, ok := part.(*openflow.MultipartReply)
		if !ok {
			return nil, fmt.Errorf("switch %v answers a request for port counters with %T", s.dpid, part)
		}
		ports, ok := m.Body.(*openflow.PortStatsReply)
		if !ok {
			return nil, fmt.Errorf("switch %v answers a request for port counters with another type of statistics", s.dpid)
		}
		for _, p := range *ports {
			if _, ok := s.Port(p.Port); !ok || p.Port > openflow.PortMax || !s.Connected() {
				continue // ignore ports that do not exist, or nothing would ever remove them
			}
			out = append(out, stats.Sample{
				Port: PortRef{Switch: s.dpid, Port: p.Port}, Sent: r.sent, Received: r.answered, Age: p.Duration.Duration(),
				Counters: stats.Counters{
					RxBytes: p.RxBytes, TxBytes: p.TxBytes, RxPackets: p.RxPackets, TxPackets: p.TxPackets,
					RxDropped: p.RxDropped, TxDropped: p.TxDropped, RxErrors: p.RxErrors, TxErrors: p.TxErrors,
				},
			})
		}
	}
	return out, nil
}
