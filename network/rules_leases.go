package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/rule"
)

// leaseRenewInterval is how often leases are renewed: two renewals may be lost.
const leaseRenewInterval = rule.LeaseFor / 3

// runLeases is the goroutine that renews leased rules. Where it does not, switches ask
// nobody any more, and packets go their ordinary way.
func (x *ownerRegistry) runLeases(ctx context.Context) {
	tick := time.NewTicker(leaseRenewInterval)
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
func (x *ownerRegistry) renewLeases() {
	for _, o := range x.list() {
		for _, key := range x.installer.ledger.Leased(o.ledgerOwner) {
			o.renewLeases(key)
		}
	}
}

// renewLeases sends the leased rules of a key. If they are just being changed, that is left for
// the next time: what has been deleted must not be written again.
func (o *Owner) renewLeases(key string) {
	release, _ := o.tryLock(key)
	if release == nil {
		return
	}
	defer release()
	for _, st := range splitBySwitch(o.installer.ledger.Renew(o.ledgerOwner, key), false) {
		if err := o.installer.enqueue(st, false); err != nil {
			o.installer.logLimiter.Warn(o.installer.log, "renewing leased rules", "switch", st.sw, "owner", o.name, "error", err)
		}
	}
}
