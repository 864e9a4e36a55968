package network

import (
	"context"
	"maps"
	"sync"
	"time"
)

// maintain is the clockwork: probes, repairs, and what ends by time.
func (n *Network) maintain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.forwarding.runRepairs(ctx) })
	wg.Go(func() { n.base.run(ctx) })
	wg.Go(func() { n.owners.runLeases(ctx) })
	wg.Go(func() { n.doubted.run(ctx) })
	wg.Go(func() { n.amends.run(ctx) })
	wg.Go(func() {
		r := remembering{hosts: n.hosts, keep: n.cfg.Remember, log: n.log, written: budget{each: rememberedEach, all: rememberedAll}}
		r.run(ctx)
	})
	wg.Go(func() { n.events.run(ctx) })
	wg.Go(func() { n.doctor.run(ctx) })
	probe := time.NewTimer(0)
	defer probe.Stop()
	held := time.NewTicker(holdTick)
	defer held.Stop()
	record := time.NewTimer(n.traffic.untilRecord())
	defer record.Stop()
	age := time.NewTicker(time.Minute)
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.prober.ticks:
			probe.Reset(time.Until(n.prober.probe(time.Now())))
		case <-probe.C:
			probe.Reset(time.Until(n.prober.probe(time.Now())))
		case now := <-held.C:
			n.expireHeld(now)
		case now := <-record.C:
			n.traffic.record(now)
			record.Reset(n.traffic.untilRecord())
		case now := <-age.C:
			n.hostChanges(n.hosts.Expire(now))
		}
	}
}

// holdTick is how precisely the time of held packets is kept.
const holdTick = 20 * time.Millisecond

// expireHeld forwards packets whose service has not decided in time.
func (n *Network) expireHeld(now time.Time) {
	for s := range maps.Values(*n.switches.up.Load()) {
		for _, h := range s.held.expired(now) {
			if err := h.Forward(); err != nil {
				s.limiter.Warn(n.log, "forwarding a packet held too long", "switch", s.dpid, "error", err)
			}
		}
	}
}
