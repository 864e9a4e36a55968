package egress

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

// thumbnail answers with a small picture of a channel that everybody may watch.
func (g *Gateway) thumbnail(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("channel")
	i, l := -1, g.lineup.Load()
	if l != nil {
		i = slices.IndexFunc(l.Channels, func(c gatewayapi.Listed) bool { return c.Name == name })
	}
	if i < 0 || l.Channels[i].Protected {
		return refused(http.StatusNotFound, "channel", "there is no picture of channel %.80q", name)
	}
	w.Header().Set("Cache-Control", "no-store")
	var t gatewayapi.Thumbnail
	var err error
	if l.Channels[i].OnAir == gatewayapi.OnAirLive {
		t, err = g.thumbnails.Of(r.Context(), name)
	}
	if err != nil || len(t.JPEG) == 0 || len(t.JPEG) > gatewayapi.MaxThumbnail {
		w.WriteHeader(http.StatusNoContent) // it has no picture now, or the controller is away
		return nil
	}
	w.Header().Set("Content-Type", "image/jpeg")
	_, _ = w.Write(t.JPEG) // the client has gone, which it will notice
	return nil
}

func (r remote) Thumbnail(ctx context.Context, channel string) (t gatewayapi.Thumbnail, err error) {
	err = r.Get(ctx, base+"thumbnail?channel="+url.QueryEscape(channel), &t)
	return t, err
}
