package egress

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// thumbnail serves a small picture of a channel for which viewers need no password.
func (g *Gateway) thumbnail(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("channel")
	i, l := -1, g.lineup.Load()
	if l != nil {
		i = slices.IndexFunc(l.Channels, func(c gatewayapi.Listed) bool { return c.Name == name })
	}
	if i < 0 || l.Channels[i].Protected {
		return newRefusal(http.StatusNotFound, "channel", "there is no picture of channel %.80q", name)
	}
	w.Header().Set("Cache-Control", "no-store")
	var t gatewayapi.Thumbnail
	var err error
	if l.Channels[i].OnAir == gatewayapi.OnAirLive {
		t, err = g.thumbnails.Of(r.Context(), name)
	}
	if err != nil || len(t.JPEG) == 0 || len(t.JPEG) > gatewayapi.MaxThumbnail {
		w.WriteHeader(http.StatusNoContent) // the channel has no picture now, or the controller does not answer
		return nil
	}
	w.Header().Set("Content-Type", "image/jpeg")
	_, _ = w.Write(t.JPEG) // an error means that the client has gone
	return nil
}

func (r remote) Thumbnail(ctx context.Context, channel string) (t gatewayapi.Thumbnail, err error) {
	err = r.Get(ctx, base+"thumbnail?channel="+url.QueryEscape(channel), &t)
	return t, err
}
