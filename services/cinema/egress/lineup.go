package egress

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// lineupFresh is how old a lineup may be that a page gets, as long as the controller answers. It
	// also bounds how often pages make the gateway ask the controller.
	lineupFresh = 100 * time.Millisecond
	// lineupTimeout is how long a page waits for the controller before it gets the last lineup.
	lineupTimeout = 500 * time.Millisecond
)

// pollLineup requests the lineup periodically. While the controller does not answer, it keeps
// the last one.
func (g *Gateway) pollLineup(ctx context.Context) {
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, g.cfg.Times.Ask)
		err := g.updateLineup(asked)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch away := g.controllerAway.Swap(err != nil); {
		case err == nil && away:
			g.cfg.Log.Info("the controller is back", "channels", len(g.lineup.Load().Channels))
		case err != nil && !away:
			g.cfg.Log.Warn("no lineup from the controller; watching goes on with the last one", "error", err)
		}
		if tasks.Sleep(ctx, g.cfg.Times.Poll) != nil {
			return
		}
	}
}

// updateLineup requests the lineup, unless the present one is fresh. At most one request is in progress.
func (g *Gateway) updateLineup(ctx context.Context) error {
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now := time.Now()
	if now.Sub(g.lineupAt) < lineupFresh {
		return nil
	}
	l, err := g.cfg.Controller.Lineup(ctx)
	if err != nil {
		return err
	}
	g.lineup.Store(&l)
	g.lineupAt = now
	return nil
}

// currentLineup returns the lineup as the controller has it now, or the last one if the controller does
// not answer soon. It returns nil if there is none yet.
func (g *Gateway) currentLineup(ctx context.Context) *gatewayapi.Lineup {
	if !g.controllerAway.Load() {
		ctx, cancel := context.WithTimeout(ctx, lineupTimeout)
		defer cancel()
		_ = g.updateLineup(ctx) // an error leaves the last one, and pollLineup reports that the controller is away
	}
	return g.lineup.Load()
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
