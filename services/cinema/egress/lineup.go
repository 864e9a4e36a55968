package egress

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
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

// sourcePort returns the source port of a channel's packets, or 0 if the channel is not in the
// lineup yet.
func (g *Gateway) sourcePort(channel string) uint16 {
	if l := g.lineup.Load(); l != nil {
		for _, c := range l.Channels {
			if c.Name == channel {
				return gatewayapi.SourcePort(c.Number)
			}
		}
	}
	return 0
}

// sourcePorts returns the source ports of several channels, preferring the sources in from.
func (g *Gateway) sourcePorts(channels []string, from map[string]netip.AddrPort) []uint16 {
	ports := make([]uint16, len(channels))
	for i, c := range channels {
		if ports[i] = g.sourcePort(c); from[c].IsValid() {
			ports[i] = from[c].Port()
		}
	}
	return ports
}

// If a channel's packets stop, another ingress gateway may have it. These constants set how
// long they may be missing, how many channels are requested in each round, and how often rounds
// are.
const (
	sourceTimeout       = time.Second
	maxSourceQueries    = 16
	sourceCheckInterval = 2 * time.Second
)

// checkSources requests the sources of silent channels again.
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

// silent returns the viewer's channel, and reports whether its packets have stopped.
func (v *viewer) silent(now time.Time) (channel string, silent bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.channel, v.connected && now.Sub(v.receivedAt) > sourceTimeout
}

// unlessChanging calls f unless a change is in progress. No change starts until f returns.
func (v *viewer) unlessChanging(f func()) {
	select {
	case v.changing <- struct{}{}:
		defer func() { <-v.changing }()
		f()
	default:
	}
}

// sourceMoved switches the viewer to a new source of its channel, unless it has changed to
// another channel.
func (v *viewer) sourceMoved(channel string, from netip.AddrPort) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.channel == channel && from.IsValid() && v.currentSource != from {
		v.currentSource = from
		v.in.setPorts([]uint16{from.Port()}) // the port differs if the channel's number has changed
		v.in.group(from, time.Now())         // starts to cache it
		v.awaitKeyFrame(from)
	}
}
