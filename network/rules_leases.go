package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/rule"
)

// leaseRenewInterval is the interval at which leases are renewed. Two renewals may be lost before
// a lease ends.
const leaseRenewInterval = rule.LeaseFor / 3

// runLeases renews the leased rules until ctx ends. When renewals stop, the leased rules expire:
// switches no longer ask the controller, and packets are forwarded as if those rules did not
// exist.
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

// renewLeases sends all installed leased rules again. It does not wait for switches.
func (x *ownerRegistry) renewLeases() {
	for _, o := range x.list() {
		for _, key := range x.installer.ledger.Leased(o.ledgerOwner) {
			o.renewLeases(key)
		}
	}
}

// renewLeases sends the leased rules of a key. It skips a key that is being changed until the next
// time, because it must not write a deleted rule again.
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
