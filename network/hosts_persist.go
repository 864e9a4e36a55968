package network

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// persistInterval is how often is kept what has changed about hosts.
	persistInterval = 10 * time.Second
	// persistTimeout bounds how long that may take each time, and at the end all of it.
	persistTimeout = 5 * time.Second
)

// What is kept of the hosts of a switch: all of them at once, and then twelve thousand changes
// an hour, some 3 MB of a store that keeps what it had for that long.
var (
	persistRatePerSwitch = rate{burst: hosts.DefaultMaxPerSwitch, interval: 300 * time.Millisecond}
	persistRateTotal     = rate{burst: hosts.DefaultMaxHosts, interval: 75 * time.Millisecond}
)

// hostPersister has changes about hosts kept over a restart.
type hostPersister struct {
	hosts   *hosts.Table
	store   func(context.Context, []HostNote) error // nil if nobody does
	log     *slog.Logger
	limiter switchLimiter
	unsaved []HostNote // could not be kept the last time
	failed  bool
}

// run keeps what is known of hosts, until ctx ends and once more then.
func (r *hostPersister) run(ctx context.Context) {
	if r.store == nil {
		return
	}
	tick := time.NewTicker(persistInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case now := <-tick.C:
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
			r.save(within, func(d openflow.DatapathID) bool { return r.limiter.allow(d, now) })
			cancel()
		case <-ctx.Done():
		}
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	for r.save(within, func(openflow.DatapathID) bool { return true }) {
	}
}

// save keeps a part of what has changed, and says whether it could and there may be more.
func (r *hostPersister) save(ctx context.Context, allow func(openflow.DatapathID) bool) (more bool) {
	if len(r.unsaved) == 0 {
		r.unsaved = r.hosts.Notes(allow)
	}
	if len(r.unsaved) == 0 {
		return false
	}
	err := r.store(ctx, r.unsaved)
	switch {
	case err == nil:
		r.hosts.Kept(r.unsaved)
		r.unsaved = nil
		if r.failed {
			r.log.Info("changes of hosts are kept again")
		}
	case !r.failed:
		r.log.Warn("changes of hosts are not kept for now, and a restart would forget them", "error", err)
	}
	r.failed = err != nil
	return err == nil
}
