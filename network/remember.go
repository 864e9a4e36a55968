package network

import (
	"context"
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
	n       *Network
	written budget
	pending []HostNote // could not be kept the last time
	failed  bool
}

// runRemember keeps what is known of hosts, until ctx ends and once more then.
func (n *Network) runRemember(ctx context.Context) {
	if n.cfg.Remember == nil {
		return
	}
	r := remembering{n: n, written: budget{each: rememberedEach, all: rememberedAll}}
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
		r.pending = r.n.hosts.Notes(may)
	}
	if len(r.pending) == 0 {
		return false
	}
	err := r.n.cfg.Remember(ctx, r.pending)
	switch {
	case err == nil:
		r.n.hosts.Kept(r.pending)
		r.pending = nil
		if r.failed {
			r.n.log.Info("changes of hosts are kept again")
		}
	case !r.failed:
		r.n.log.Warn("changes of hosts are not kept for now, and a restart would forget them", "error", err)
	}
	r.failed = err != nil
	return err == nil
}
