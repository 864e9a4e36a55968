package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/rule"
)

// renewEvery is how often leases are renewed: two renewals may be lost.
const renewEvery = rule.LeaseFor / 3

// runLeases is the goroutine that renews leased rules. Where it does not, switches ask
// nobody any more, and packets go their ordinary way.
func (x *owners) runLeases(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			x.renewLeases()
		}
	}
}

// renewLeases sends the leased rules that are in force once more. It waits for no switch.
func (x *owners) renewLeases() {
	for _, o := range x.list() {
		for _, key := range x.in.ledger.Leased(o.led) {
			o.renew(key)
		}
	}
}

// renew sends the leased rules of a key. If they are just being changed, that is left for
// the next time: what has been deleted must not be written again.
func (o *Owner) renew(key string) {
	release, _ := o.tryLock(key)
	if release == nil {
		return
	}
	defer release()
	for _, st := range split(o.in.ledger.Renew(o.led, key), false) {
		if err := o.in.post(st, false); err != nil {
			o.in.upkeep.Warn(o.in.log, "renewing leased rules", "switch", st.sw, "owner", o.name, "error", err)
		}
	}
}
