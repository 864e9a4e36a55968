package cinema

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// applyRecords ends the old channels of viewers that have changed, as their gateway has recorded.
// A record applies only to the viewer's last grant, so that it does not end a channel which the
// viewer has requested since. A report ends the old channel of a viewer whose record is lost.
func (t *viewers) applyRecords(gateway string, all []gatewayapi.ViewerEvent) (out []viewerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[gateway]
	if g == nil {
		return nil
	}
	for i := range all {
		e := &all[i]
		v := g.viewers[e.Viewer]
		if v != nil && e.What == "changed" && e.Grant != 0 && e.Grant == v.grant && len(v.channels) > 1 && v.channels[0] == e.Channel {
			out = append(out, t.setChannels(g, v, v.channels[:1:1]))
		}
	}
	return out
}

// applyReport updates the viewers of a gateway from its report, which lists all of them. A
// viewer gets a channel that its gateway has not requested only if may returns true; b bounds
// the viewers. It returns the changes, and whether the gateway was unreachable before.
func (t *viewers) applyReport(gateway, instance string, all []gatewayapi.Viewer, b bounds, now time.Time, may func(channel string) bool) (out []viewerChange, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateway(gateway)
	if g.instance != instance && g.instance != "" {
		for _, v := range g.viewers { // the new process has other viewers, some of which it may have requested already
			if now.Sub(v.requestedAt) >= reportGrace {
				out = append(out, t.setChannels(g, v, nil))
			}
		}
		clear(g.removed)
	}
	back = g.unreachable
	g.instance, g.unreachable = instance, false
	listed := make(map[string]bool, len(all))
	for i := range all {
		if told := &all[i]; validReport(told) && !listed[told.ID] && len(listed) < min(b.viewers, MaxViewers) {
			listed[told.ID] = true
			if x, ok := t.applyViewerReport(g, gateway, told, &b, now, may); ok {
				out = append(out, x)
			}
		}
	}
	for id, v := range g.viewers {
		last := v.reportedAt
		if v.requestedAt.After(last) {
			last = v.requestedAt
		}
		if !listed[id] && now.Sub(last) >= reportGrace {
			out = append(out, t.setChannels(g, v, nil))
		}
	}
	for id := range g.removed {
		if listed[id] {
			g.removed[id] = now
		}
	}
	maps.DeleteFunc(g.removed, func(_ string, at time.Time) bool { return now.Sub(at) >= reportGrace })
	maps.DeleteFunc(g.departed, func(_ string, at time.Time) bool { return now.Sub(at) >= reportGrace })
	return out, back
}

// applyViewerReport updates one viewer from its gateway's report, and reports whether its
// channels or port have changed. t.mu is held.
func (t *viewers) applyViewerReport(g *gatewayState, gateway string, told *gatewayapi.Viewer, b *bounds, now time.Time, may func(string) bool) (x viewerChange, ok bool) {
	v := g.viewers[told.ID]
	if v == nil && (!g.removed[told.ID].IsZero() || now.Sub(g.departed[told.ID]) < reportGrace || g.portTaken(nil, told.Port, told.Shared) || len(g.viewers) >= min(b.viewers, MaxViewers)) {
		return x, false
	}
	if v == nil {
		v = &viewer{gateway: gateway, id: told.ID}
	}
	v.reported, v.reportedAt = *told, now
	if v.port == told.Port && slices.Equal(v.channels, told.Channels) || now.Sub(v.requestedAt) < reportGrace {
		return x, false
	}
	if g.portTaken(v, told.Port, told.Shared) {
		return x, false
	}
	var channels []string
	for _, c := range told.Channels {
		if slices.Contains(v.channels, c) || may(c) {
			channels = append(channels, c)
		}
	}
	if v.port == told.Port && slices.Equal(v.channels, channels) || t.fits(g, v, told.Port, channels, b) != nil {
		return x, false
	}
	v.unconfirmed = true // the gateway may request the same before the network has confirmed it
	return t.update(g, v, told.Port, told.Shared, channels, v.requestedAt), true
}

// validReport reports whether a viewer's report is well-formed.
func validReport(v *gatewayapi.Viewer) bool {
	n := len(v.Channels)
	return viewerID.MatchString(v.ID) && v.Port >= minPort && n > 0 && n <= gatewayapi.MaxWatched &&
		!(n == 2 && v.Channels[0] == v.Channels[1]) && !slices.ContainsFunc(v.Channels, func(c string) bool { return !channelName.MatchString(c) })
}
