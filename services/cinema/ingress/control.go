package ingress

import (
	"net/http"
	"net/netip"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// newServer returns the control server with the operations on channels.
func (g *Gateway) newServer() *control.Server[gatewayapi.ChannelEvent, gatewayapi.ChannelState] {
	s := control.NewServer[gatewayapi.ChannelEvent](control.Options[gatewayapi.ChannelState]{
		Log: g.log, MaxSessions: g.cfg.MaxChannels, Status: g.status, Sessions: func() int { return len(g.list()) },
		Live: g.live, Totals: g.trafficTotals, Drift: g.drift.List, Metrics: g.registry(),
	})
	control.Handle(s, "PUT /v1/channels/{name}", func(r *http.Request, in gatewayapi.Channel) (out control.Nothing, err error) {
		source, err := g.checkChannel(r.PathValue("name"), in)
		if err != nil {
			return out, err
		}
		return out, g.setChannel(in, source)
	})
	control.Handle(s, "DELETE /v1/channels/{name}", func(r *http.Request, _ control.Nothing) (out control.Nothing, err error) {
		g.deleteChannel(r.PathValue("name"))
		return out, nil
	})
	control.Handle(s, "POST /v1/channels/{name}/burst", func(r *http.Request, in gatewayapi.Burst) (out control.Nothing, err error) {
		c := g.channel(r.PathValue("name"))
		if c == nil {
			return out, &control.Problem{Title: "no such channel", Code: control.CodeNotFound, Detail: clip(r.PathValue("name"))}
		}
		if err := g.checkBurst(in); err != nil {
			return out, err
		}
		return out, c.burst(in.To, g.bursts)
	})
	control.Handle(s, "GET /v1/channels/{name}/thumbnail", func(r *http.Request, _ control.Nothing) (gatewayapi.Thumbnail, error) {
		return g.thumbnails.Of(r.Context(), r.PathValue("name"))
	})
	return s
}

// status returns the gateway's version, addresses and warnings for its reports.
func (g *Gateway) status() control.Status {
	return control.Status{Version: g.cfg.Version, Addrs: []netip.Addr{g.cfg.Data}, PublicURL: g.public.url, Warnings: g.warnings}
}

// live returns the states of the channels for the event stream.
func (g *Gateway) live() (out []gatewayapi.ChannelState) {
	for _, c := range g.list() {
		out = append(out, c.state())
	}
	return out
}

// trafficTotals returns the bytes that were received and sent, and the bytes that are cached.
func (g *Gateway) trafficTotals() (in, out, held uint64) {
	for _, c := range g.list() {
		held += uint64(c.cache.Size())
	}
	return g.totals.in.Load(), g.totals.out.Load(), held
}
