package egress

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// pollLineup requests the lineup periodically. While the controller does not answer, it keeps
// the last one.
func (g *Gateway) pollLineup(ctx context.Context) {
	away := false
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, g.cfg.Times.Ask)
		l, err := g.cfg.Controller.Lineup(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			g.lineup.Store(&l)
			if away {
				g.cfg.Log.Info("the controller is back", "channels", len(l.Channels))
			}
			away = false
		case !away:
			g.cfg.Log.Warn("no lineup from the controller; watching goes on with the last one", "error", err)
			away = true
		}
		if tasks.Sleep(ctx, g.cfg.Times.Poll) != nil {
			return
		}
	}
}

// maxSourceQueries bounds the silent channels whose sources are requested again in each round of
// checkSources. sourceCheckInterval is the time between two rounds.
const (
	maxSourceQueries    = 16
	sourceCheckInterval = 2 * time.Second
)

// checkSources periodically asks the controller again for the sources of channels that have fallen
// silent, because the channels may have moved to another ingress gateway.
func (g *Gateway) checkSources(ctx context.Context) {
	for tasks.Sleep(ctx, sourceCheckInterval) == nil {
		silent := map[string][]*viewer{}
		for _, v := range g.all() {
			if channel, silentNow := v.silent(time.Now()); silentNow && (silent[channel] != nil || len(silent) < maxSourceQueries) {
				silent[channel] = append(silent[channel], v)
			}
		}
		for channel, viewers := range silent {
			g.relocate(ctx, channel, viewers)
		}
	}
}

func (g *Gateway) relocate(ctx context.Context, channel string, viewers []*viewer) {
	var granted grant
	viewers[0].unlessChanging(func() {
		granted, _ = g.requestChannels(ctx, viewers[0], []string{channel}, "", false) // the next round asks again
	})
	for _, v := range viewers {
		v.unlessChanging(func() { v.sourceMoved(channel, granted.from[channel]) })
	}
}
