package cinema

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

type byChannel struct {
	Channel string `query:"channel" required:"true" minLength:"1" doc:"Name of the channel"`
}

// registerThumbnails lets operators and gateways see thumbnails of channels. The channel is a
// query parameter because permissions of gateways apply to paths.
func (s *Service) registerThumbnails(a *api.API, r kit.REST) {
	const path = "thumbnail"
	a.Permit(pki.RoleAgent, http.MethodGet, api.Prefix+"/"+Name+"/"+path)
	kit.Register(r, http.MethodGet, path, "Show a small picture of a live channel without a password",
		func(ctx context.Context, in *byChannel) (*kit.Body[gatewayapi.Thumbnail], error) {
			x, ok := s.Channels.Item(in.Channel)
			if !ok || x.Value.ViewHash != "" {
				return nil, api.NotFound("query.channel", in.Channel, "want the name of a channel without a password for viewers")
			}
			t, err := s.thumbnails.Of(ctx, in.Channel)
			if err != nil {
				return nil, api.NotFound("query.channel", in.Channel, fmt.Sprintf("there is no picture of it: %v", err))
			}
			return &kit.Body[gatewayapi.Thumbnail]{Body: t}, nil
		})
}

// thumbnail requests a thumbnail from the ingress gateway of a channel.
func (s *Service) thumbnail(ctx context.Context, channel string) (t gatewayapi.Thumbnail, err error) {
	x, _ := s.Channels.Item(channel)
	a, err := s.sources.assignedGateway(&x.Value)
	if err != nil {
		return t, err
	}
	t, err = a.Client.Thumbnail(ctx, channel)
	if err == nil && len(t.JPEG) > gatewayapi.MaxThumbnail {
		return gatewayapi.Thumbnail{}, fmt.Errorf("ingress gateway %s: a picture of %d bytes, want %d at most", a.Name, len(t.JPEG), gatewayapi.MaxThumbnail)
	}
	return t, err
}
