package network

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// pulse is what shows that a switch lives, and how long its answers take.
type pulse struct {
	ch      *channel
	timeout time.Duration // the silence after which the session ends
	rtt     roundTrips
	loops   loops
}

// take takes the round-trip time a few times, and ends a session that has been
// silent for too long.
func (p *pulse) take(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var trips []time.Duration
	for range roundTripsAtOnce {
		r, err := p.ch.exchange(ctx, &openflow.EchoRequest{})
		if err != nil {
			break
		}
		r.release()
		trips = append(trips, r.answered.Sub(r.sent))
	}
	if len(trips) > 0 {
		p.rtt.addEchoes(trips)
		p.takeLoops(ctx)
		return
	}
	if silent := time.Since(time.Unix(0, p.ch.heard.Load())); silent >= p.timeout && !p.ch.ended() {
		p.ch.close(fmt.Errorf("no sign of life for %v", silent.Round(time.Millisecond)))
	}
}

// takeLoops takes the round-trip time of packets a few times.
func (p *pulse) takeLoops(ctx context.Context) {
	for range roundTripsAtOnce {
		if !p.loops.able(time.Now()) {
			p.rtt.forgetLoops()
			return
		}
		if trip, ok := p.loop(ctx); ok {
			p.rtt.addLoop(trip)
		}
	}
}

// loop takes one round trip of a packet; false if it does not come back.
func (p *pulse) loop(ctx context.Context) (time.Duration, bool) {
	frame, came := p.loops.next()
	timer := time.NewTimer(loopTimeout)
	defer timer.Stop()
	sent := time.Now()
	if err := p.ch.packetOut(openflow.PortController, []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}, frame); err != nil {
		return 0, false // its queue is full, or it has gone: no fault of the switch
	}
	select {
	case at := <-came:
		p.loops.over(true, at)
		return at.Sub(sent), true
	case now := <-timer.C:
		p.loops.over(false, now)
	case <-p.ch.done:
	case <-ctx.Done():
	}
	return 0, false
}

// monitor watches a session until it ends: round-trip time, silence, counters.
func (s *Switch) monitor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var counting sync.WaitGroup
	defer counting.Wait()
	defer cancel()
	counting.Go(func() { s.pollCounters(ctx) })
	s.pulse.take(ctx)
	// Links are measured as often as they are probed.
	echo := time.NewTicker(min(s.n.cfg.EchoInterval, s.n.cfg.DiscoveryInterval))
	defer echo.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ch.done:
			return
		case <-echo.C:
			s.pulse.take(ctx)
			s.n.forwarding.forgetRefused(s)
			s.ch.endWithholding()
		}
	}
}
