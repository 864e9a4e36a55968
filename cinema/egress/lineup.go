package egress

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/internal/tasks"
)

// watchLineup looks at the lineup again and again. While the controller is away the last one is
// kept.
func (g *Gateway) watchLineup(ctx context.Context) {
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

// sourcePort is the port from which a channel's packets come; 0 if the channel is not in the
// lineup, maybe not yet.
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

// sourcePorts are those of several channels, of which some are known to come from somewhere.
func (g *Gateway) sourcePorts(channels []string, from map[string]netip.AddrPort) []uint16 {
	ports := make([]uint16, len(channels))
	for i, c := range channels {
		if ports[i] = g.sourcePort(c); from[c].IsValid() {
			ports[i] = from[c].Port()
		}
	}
	return ports
}

// A channel whose packets do not come may come from another ingress gateway by now: how long
// nothing may come, and how many channels are asked for each time.
const (
	quiet     = time.Second
	maxAsked  = 16
	lookAgain = 2 * time.Second
)

// watchSources asks again where channels come from that do not come any more.
func (g *Gateway) watchSources(ctx context.Context) {
	for tasks.Sleep(ctx, lookAgain) == nil {
		silent := map[string][]*viewer{}
		for _, v := range g.all() {
			if channel, is := v.silent(time.Now()); is && (silent[channel] != nil || len(silent) < maxAsked) {
				silent[channel] = append(silent[channel], v)
			}
		}
		for channel, viewers := range silent {
			g.findAgain(ctx, channel, viewers)
		}
	}
}

func (g *Gateway) findAgain(ctx context.Context, channel string, viewers []*viewer) {
	var from map[string]netip.AddrPort
	viewers[0].between(func() {
		from, _ = g.want(ctx, viewers[0], []string{channel}, "", false) // if not, it is asked again soon
	})
	if from == nil {
		return
	}
	for _, v := range viewers {
		v.between(func() { v.moved(channel, from[channel]) })
	}
}

// silent says which channel the viewer sees, and whether nothing comes of it.
func (v *viewer) silent(now time.Time) (channel string, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.channel, v.connected && now.Sub(v.heard) > quiet
}

// between calls f unless a change is under way; none begins until f returns.
func (v *viewer) between(f func()) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
		f()
	default:
	}
}

// moved has the viewer's channel come from another source, unless it sees another channel by
// now.
func (v *viewer) moved(channel string, from netip.AddrPort) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.channel == channel && from.IsValid() && v.home != from {
		v.home = from
		v.in.follow([]uint16{from.Port()}) // another one, if the channel's number is
		v.in.group(from, time.Now())       // is kept
		v.await(from)
	}
}
