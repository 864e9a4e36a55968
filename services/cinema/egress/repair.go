package egress

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// repairInterval is the least time between two requests to repeat a viewer's channel
	// because packets are missing.
	repairInterval = 250 * time.Millisecond
	// maxRepairs bounds the concurrent requests of all viewers for that.
	maxRepairs = 16
)

// requestRepair requests missing packets of the picture again. The switches do not know what
// they have lost, but the ingress gateway has everything. v.mu is held.
func (v *viewer) requestRepair(now time.Time) {
	if !v.g.cfg.Burst || v.nextSource.IsValid() || now.Sub(v.repairedAt) < repairInterval || !v.splicer.Missing(now) {
		return
	}
	v.repairedAt = now
	current := v.splicer.Current()
	for _, raw := range v.in.group(current, now) { // perhaps only this viewer has lost it
		v.splice(current, raw, now)
	}
	if !v.splicer.Missing(now) || !v.in.allowRepair(current, now) {
		return
	}
	select {
	case v.g.repairs <- struct{}{}:
	default:
		return
	}
	channel := v.channel
	if !v.tasks.Start(func(ctx context.Context) {
		defer func() { <-v.g.repairs }()
		v.unlessChanging(func() { v.requestBurst(ctx, channel) })
	}) {
		<-v.g.repairs
	}
}

// requestBurst requests a channel's group of pictures, if it is still the viewer's channel.
func (v *viewer) requestBurst(ctx context.Context, channel string) {
	if v.currentChannel() != channel {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, repairInterval)
	defer cancel()
	v.g.metrics.repairs.Inc()
	_, _ = v.g.requestChannels(ctx, v, []string{channel}, "", true) // another request follows soon if this one fails
}

// repeatBursts requests the new channel's group of pictures again while a change waits for a
// key frame, whose beginning may be lost. The pauses between the requests double. The returned
// function stops this, and waits for a request in progress.
func (v *viewer) repeatBursts(wanted []string) (stop func()) {
	ctx, cancel := context.WithCancel(v.tasks.Context())
	done := make(chan struct{})
	if !v.g.cfg.Burst || !v.tasks.Start(func(context.Context) {
		defer close(done)
		for pause := repairInterval; tasks.Sleep(ctx, pause) == nil; pause *= 2 {
			v.g.metrics.repairs.Inc()
			_, _ = v.requestChannels(v.tasks.Context(), wanted, "", true)
		}
	}) {
		close(done)
	}
	return func() { cancel(); <-done }
}
