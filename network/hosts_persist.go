package network

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// rememberEvery is how often is kept what has changed about hosts.
	rememberEvery = 10 * time.Second
	// rememberWithin bounds how long that may take each time, and at the end all of it.
	rememberWithin = 5 * time.Second
)

// What is kept of the hosts of a switch: all of them at once, and then twelve thousand changes
// an hour, some 3 MB of a store that keeps what it had for that long.
var (
	rememberedEach = rate{burst: hosts.DefaultMaxPerSwitch, interval: 300 * time.Millisecond}
	rememberedAll  = rate{burst: hosts.DefaultMaxHosts, interval: 75 * time.Millisecond}
)

// remembering has changes about hosts kept over a restart.
type remembering struct {
	hosts   *hosts.Table
	keep    func(context.Context, []HostNote) error // nil if nobody does
	log     *slog.Logger
	written budget
	pending []HostNote // could not be kept the last time
	failed  bool
}

// run keeps what is known of hosts, until ctx ends and once more then.
func (r *remembering) run(ctx context.Context) {
	if r.keep == nil {
		return
	}
	tick := time.NewTicker(rememberEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case now := <-tick.C:
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberWithin)
			r.save(within, func(d openflow.DatapathID) bool { return r.written.take(d, now) })
			cancel()
		case <-ctx.Done():
		}
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberWithin)
	defer cancel()
	for r.save(within, func(openflow.DatapathID) bool { return true }) {
	}
}

// save keeps a part of what has changed, and says whether it could and there may be more.
func (r *remembering) save(ctx context.Context, may func(openflow.DatapathID) bool) (more bool) {
	if len(r.pending) == 0 {
		r.pending = r.hosts.Notes(may)
	}
	if len(r.pending) == 0 {
		return false
	}
	err := r.keep(ctx, r.pending)
	switch {
	case err == nil:
		r.hosts.Kept(r.pending)
		r.pending = nil
		if r.failed {
			r.log.Info("changes of hosts are kept again")
		}
	case !r.failed:
		r.log.Warn("changes of hosts are not kept for now, and a restart would forget them", "error", err)
	}
	r.failed = err != nil
	return err == nil
}
