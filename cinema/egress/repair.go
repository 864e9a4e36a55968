package egress

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// askEvery is the least time between two times that a viewer's channel is asked for again
	// because something of it is missing.
	askEvery = 250 * time.Millisecond
	// maxRepairs is how many of all viewers ask for that at once.
	maxRepairs = 16
)

// ask has what is missing of the picture be sent again: the switches do not know what they have
// lost, the ingress gateway has it all. v.mu is held.
func (v *viewer) ask(now time.Time) {
	if !v.g.cfg.Burst || v.expected.IsValid() || now.Sub(v.asked) < askEvery || !v.splicer.Missing(now) {
		return
	}
	v.asked = now
	current := v.splicer.Current()
	for _, raw := range v.in.group(current, now) { // the viewer alone may have lost it
		v.put(current, raw, now)
	}
	if !v.splicer.Missing(now) || !v.in.mayAsk(current, now) {
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
		v.between(func() { v.askFor(ctx, channel) })
	}) {
		<-v.g.repairs
	}
}

// askFor asks for a channel's group of pictures, if it is still the one that is seen.
func (v *viewer) askFor(ctx context.Context, channel string) {
	if v.seen() != channel {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	v.g.metrics.asked.Inc()
	_, _ = v.g.want(ctx, v, []string{channel}, "", true) // if not, it is asked again soon
}

// askMeanwhile has the first channel's group of pictures be sent again while a change to it waits for a key
// frame, of which the beginning may be lost: each time after twice as long. What it returns ends
// that, and waits for what has been asked for.
func (v *viewer) askMeanwhile(wanted []string) (settle func()) {
	ctx, cancel := context.WithCancel(v.tasks.Context())
	done := make(chan struct{})
	if !v.g.cfg.Burst || !v.tasks.Start(func(context.Context) {
		defer close(done)
		for pause := askEvery; tasks.Sleep(ctx, pause) == nil; pause *= 2 {
			v.g.metrics.asked.Inc()
			_, _ = v.want(v.tasks.Context(), wanted, "", true)
		}
	}) {
		close(done)
	}
	return func() { cancel(); <-done }
}
