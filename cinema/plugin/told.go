package plugin

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

// take takes in what a gateway tells of all its viewers. may says which channels one may have
// that it has not asked for. b bounds them. It returns what has changed by that, and
// whether the gateway has been away.
func (t *viewers) take(gateway, instance string, all []gatewayapi.Viewer, b bounds, now time.Time, may func(channel string) bool) (out []changed, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate(gateway)
	if g.instance != instance && g.instance != "" {
		for _, v := range g.viewers { // another process has others, and may have asked for some
			if now.Sub(v.asked) >= goneAfter {
				out = append(out, t.put(g, v, nil))
			}
		}
		clear(g.ended)
	}
	back = g.away
	g.instance, g.away = instance, false
	listed := make(map[string]bool, len(all))
	for i := range all {
		if told := &all[i]; right(told) && !listed[told.ID] && len(listed) < min(b.viewers, MaxViewers) {
			listed[told.ID] = true
			if x, is := t.hear(g, gateway, told, &b, now, may); is {
				out = append(out, x)
			}
		}
	}
	for id, v := range g.viewers {
		last := v.seen
		if v.asked.After(last) {
			last = v.asked
		}
		if !listed[id] && now.Sub(last) >= goneAfter {
			out = append(out, t.put(g, v, nil))
		}
	}
	for id := range g.ended {
		if listed[id] {
			g.ended[id] = now
		}
	}
	maps.DeleteFunc(g.ended, func(_ string, at time.Time) bool { return now.Sub(at) >= goneAfter })
	maps.DeleteFunc(g.left, func(_ string, at time.Time) bool { return now.Sub(at) >= goneAfter })
	return out, back
}

// hear takes in what a gateway tells of one viewer. The lock is held.
func (t *viewers) hear(g *gate, gateway string, told *gatewayapi.Viewer, b *bounds, now time.Time, may func(string) bool) (x changed, is bool) {
	v := g.viewers[told.ID]
	if v == nil && (!g.ended[told.ID].IsZero() || now.Sub(g.left[told.ID]) < goneAfter || g.taken(nil, told.Port, told.Shared) || len(g.viewers) >= min(b.viewers, MaxViewers)) {
		return x, false
	}
	if v == nil {
		v = &viewer{gateway: gateway, id: told.ID}
	}
	v.told, v.seen = *told, now
	if v.port == told.Port && slices.Equal(v.channels, told.Channels) || now.Sub(v.asked) < goneAfter {
		return x, false
	}
	if g.taken(v, told.Port, told.Shared) {
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
	v.unsure = true // it may ask for the same before the network has confirmed it
	return t.set(g, v, told.Port, told.Shared, channels, v.asked), true
}

// right says whether what a gateway tells of a viewer can be so.
func right(v *gatewayapi.Viewer) bool {
	n := len(v.Channels)
	return viewerID.MatchString(v.ID) && v.Port >= leastPort && n > 0 && n <= gatewayapi.MaxWatched &&
		!(n == 2 && v.Channels[0] == v.Channels[1]) && !slices.ContainsFunc(v.Channels, func(c string) bool { return !channelName.MatchString(c) })
}
