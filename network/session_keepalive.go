package network

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// keepalive measures a switch's response times and ends the session if the switch is silent for
// too long.
type keepalive struct {
	ch       *channel
	timeout  time.Duration // the silence after which the session ends
	rtt      roundTrips
	loopback loopback
}

// probe measures the round-trip time a few times, and ends a session that has been silent for too
// long.
func (p *keepalive) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var trips []time.Duration
	for range roundTripsPerProbe {
		r, err := p.ch.exchange(ctx, &openflow.EchoRequest{})
		if err != nil {
			break
		}
		r.release()
		trips = append(trips, r.answered.Sub(r.sent))
	}
	if len(trips) > 0 {
		p.rtt.addEchoes(trips)
		p.probeLoopback(ctx)
		return
	}
	if silent := time.Since(time.Unix(0, p.ch.lastReceived.Load())); silent >= p.timeout && !p.ch.ended() {
		p.ch.close(fmt.Errorf("no message received for %v", silent.Round(time.Millisecond)))
	}
}

// probeLoopback measures, a few times, the round-trip time of a packet that the switch returns.
func (p *keepalive) probeLoopback(ctx context.Context) {
	for range roundTripsPerProbe {
		if !p.loopback.supported(time.Now()) {
			p.rtt.clearLoopbacks()
			return
		}
		if trip, ok := p.loopbackRoundTrip(ctx); ok {
			p.rtt.addLoopback(trip)
		}
	}
}

// loopbackRoundTrip measures one round trip of a packet, and reports whether the packet came back.
func (p *keepalive) loopbackRoundTrip(ctx context.Context) (time.Duration, bool) {
	frame, returned := p.loopback.next()
	timer := time.NewTimer(loopbackTimeout)
	defer timer.Stop()
	sent := time.Now()
	if err := p.ch.packetOut(openflow.PortController, []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}, frame); err != nil {
		return 0, false // the queue is full, or the session has ended: no fault of the switch
	}
	select {
	case at := <-returned:
		p.loopback.finish(true, at)
		return at.Sub(sent), true
	case now := <-timer.C:
		p.loopback.finish(false, now)
	case <-p.ch.done:
	case <-ctx.Done():
	}
	return 0, false
}

// monitor watches a session until it ends: round-trip times, silence, overdue barriers, counters,
// rules.
func (s *Switch) monitor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { s.pollCounters(ctx) })
	parts.Go(func() { s.compareRules(ctx) })
	s.keepalive.probe(ctx)
	// Round trips are measured as often as links are probed, because the latency of links is
	// computed from them.
	echo := time.NewTicker(min(s.n.cfg.EchoInterval, s.n.cfg.DiscoveryInterval))
	defer echo.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ch.done:
			return
		case <-echo.C:
			s.keepalive.probe(ctx)
			s.n.forwarding.forgetRefused(s)
			s.ch.endIfOverdue()
		}
	}
}
