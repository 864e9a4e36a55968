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

// Register adds the service's operations and metrics to the API. Gateways, which have the role
// of an agent, may request channels for their viewers and read the lineup.
func (s *Service) Register(a *api.API) {
	s.metrics.register(a)
	r := kit.NewREST(a, Name)
	channels := kit.Resource[Channel, ChannelSpec, ChannelInfo]{
		Collection: s.Channels.Collection, Path: "channels", Field: "name", Show: s.show,
		Parse: func(_ string, spec ChannelSpec) (string, Channel, error) {
			c, faults := spec.Parse()
			return spec.Name, c, faults.Err()
		},
	}
	channels.Register(r)
	s.sources.registry.Register(a, kit.NewREST(a, Name+"/ingress"))
	s.egress.Register(a, kit.NewREST(a, Name+"/egress"))
	kit.Register(r, http.MethodGet, "viewers", "List the viewers; the name of a viewer in page positions is GATEWAY/ID",
		func(ctx context.Context, in *kit.Cursor) (*kit.Page[ViewerInfo], error) {
			some, next := kit.After(s.viewers.list(), viewer.key, *in)
			return &kit.Page[ViewerInfo]{Link: next, Body: s.viewerInfos(ctx, some)}, nil
		})
	kit.Show(r, "trees", "List the trees of the channels", s.trees.treeInfos)
	kit.Show(r, "links", "List what channels reserve of the links, and the most that they may", s.trees.linkInfos)
	kit.Show(r, "lineup", "Show what viewers can choose from", s.lineup)
	s.registerThumbnails(a, r)
	a.Permit(pki.RoleAgent, http.MethodGet, api.Prefix+"/"+Name+"/lineup")
	a.Permit(pki.RoleAgent, http.MethodPost, api.Prefix+"/"+Name+"/wanted")
	kit.Register(r, http.MethodPost, "wanted", "Request channels for a viewer; answered when the switches copy them",
		func(ctx context.Context, in *kit.Body[gatewayapi.Wanted]) (*kit.Body[gatewayapi.Granted], error) {
			out, err := s.changeViewer(ctx, &in.Body)
			if err != nil {
				return nil, err
			}
			return &kit.Body[gatewayapi.Granted]{Body: *out}, nil
		}, http.StatusForbidden, http.StatusTooManyRequests)
	kit.Register(r, http.MethodDelete, "viewers/{id}", "Stop all copies to a viewer; its gateway is not told, so the viewer sees a picture that stands still", s.deleteViewer)
}

type byID struct {
	ID string `path:"id" pattern:"^[0-9a-f]{32}$" patternDescription:"32 hex digits" doc:"Identifier of the viewer"`
}

func (s *Service) deleteViewer(ctx context.Context, in *byID) (*kit.Nothing, error) {
	ok, err := s.removeViewer(ctx, in.ID)
	if !ok {
		return nil, api.NotFound("path.id", in.ID, "there is no viewer with this identifier; list the viewers to see theirs")
	}
	if err != nil {
		return nil, api.Unavailable("the viewer is removed, but not all switches have stopped copying to it yet: %v", err)
	}
	return nil, nil
}

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
