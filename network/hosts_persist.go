package network

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// persistInterval is the interval at which changes of hosts are stored.
	persistInterval = 10 * time.Second
	// persistTimeout bounds each call of the store, and all calls together after Run's context has
	// ended.
	persistTimeout = 5 * time.Second
)

// Bounds on the changes that are stored, of one switch's hosts and of all. For one switch the
// changes of a full table are stored at once, and then 12,000 an hour, which take about 3 MB in a
// store that keeps old revisions for an hour.
var (
	persistRatePerSwitch = rate{burst: hosts.DefaultMaxPerSwitch, interval: 300 * time.Millisecond}
	persistRateTotal     = rate{burst: hosts.DefaultMaxHosts, interval: 75 * time.Millisecond}
)

// hostPersister stores host changes so that they survive a restart.
type hostPersister struct {
	hosts   *hosts.Table
	store   func(context.Context, []HostNote) error // nil if host changes are not stored
	log     *slog.Logger
	limiter switchLimiter
	unsaved []HostNote // changes that could not be stored
	failed  bool
}

// run stores host changes until ctx ends, and then those that remain.
func (r *hostPersister) run(ctx context.Context) {
	if r.store == nil {
		return
	}
	tick := time.NewTicker(persistInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case now := <-tick.C:
			saveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
			r.save(saveCtx, func(d openflow.DatapathID) bool { return r.limiter.allow(d, now) })
			cancel()
		case <-ctx.Done():
		}
	}
	saveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	for r.save(saveCtx, func(openflow.DatapathID) bool { return true }) {
	}
}

// save stores a part of the changes. It reports whether that succeeded and there may be more.
func (r *hostPersister) save(ctx context.Context, allow func(openflow.DatapathID) bool) (more bool) {
	if len(r.unsaved) == 0 {
		r.unsaved = r.hosts.UnsavedChanges(allow)
	}
	if len(r.unsaved) == 0 {
		return false
	}
	err := r.store(ctx, r.unsaved)
	switch {
	case err == nil:
		r.hosts.MarkSaved(r.unsaved)
		r.unsaved = nil
		if r.failed {
			r.log.Info("changes of hosts are stored again")
		}
	case !r.failed:
		r.log.Warn("cannot store changes of hosts: a restart would lose them", "error", err)
	}
	r.failed = err != nil
	return err == nil
}
