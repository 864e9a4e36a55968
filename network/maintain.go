package network

import (
	"context"
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
		r := remembering{hosts: n.hosts, keep: n.cfg.Remember, log: n.cfg.Log, written: budget{each: rememberedEach, all: rememberedAll}}
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
			n.switches.expireHeld(now)
		case now := <-record.C:
			n.traffic.record(now)
			record.Reset(n.traffic.untilRecord())
		case now := <-age.C:
			n.news.hostChanges(n.hosts.Expire(now))
		}
	}
}

// holdTick is how precisely the time of held packets is kept.
const holdTick = 20 * time.Millisecond
