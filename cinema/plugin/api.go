package plugin

import (
	"context"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/service"
)

// Register adds the service's operations and metrics to the API. Gateways, which have the role
// of an agent, may request channels for their viewers and read the lineup.
func (s *Service) Register(a *api.API) {
	s.metrics.register(a)
	r := service.NewREST(a, Name)
	channels := service.Resource[Channel, ChannelSpec, ChannelInfo]{
		Collection: s.Channels.Collection, Path: "channels", Field: "name", Show: s.show,
		Parse: func(_ string, spec ChannelSpec) (string, Channel, error) {
			c, faults := spec.Parse()
			return spec.Name, c, faults.Err()
		},
	}
	channels.Register(r)
	s.sources.registry.Register(a, service.NewREST(a, Name+"/ingress"))
	s.egress.Register(a, service.NewREST(a, Name+"/egress"))
	service.Register(r, http.MethodGet, "viewers", "List the viewers; the name of a viewer in page positions is GATEWAY/ID",
		func(ctx context.Context, in *service.Cursor) (*service.Page[ViewerInfo], error) {
			some, next := service.After(s.viewers.list(), viewer.key, *in)
			return &service.Page[ViewerInfo]{Link: next, Body: s.viewerInfos(ctx, some)}, nil
		})
	service.Show(r, "trees", "List the trees of the channels", s.trees.treeInfos)
	service.Show(r, "links", "List what channels reserve of the links, and the most that they may", s.trees.linkInfos)
	service.Show(r, "lineup", "Show what viewers can choose from", s.lineup)
	s.registerThumbnails(a, r)
	a.Permit(pki.RoleAgent, http.MethodGet, api.Prefix+"/"+Name+"/lineup")
	a.Permit(pki.RoleAgent, http.MethodPost, api.Prefix+"/"+Name+"/wanted")
	service.Register(r, http.MethodPost, "wanted", "Request channels for a viewer; answered when the switches copy them",
		func(ctx context.Context, in *service.Body[gatewayapi.Wanted]) (*service.Body[gatewayapi.Granted], error) {
			out, err := s.changeViewer(ctx, &in.Body)
			if err != nil {
				return nil, err
			}
			return &service.Body[gatewayapi.Granted]{Body: *out}, nil
		}, http.StatusForbidden, http.StatusTooManyRequests)
	service.Register(r, http.MethodDelete, "viewers/{id}", "Stop all copies to a viewer; its gateway is not told, so the viewer sees a picture that stands still", s.deleteViewer)
}

type byID struct {
	ID string `path:"id" pattern:"^[0-9a-f]{32}$" patternDescription:"32 hex digits" doc:"Identifier of the viewer"`
}

func (s *Service) deleteViewer(ctx context.Context, in *byID) (*service.Nothing, error) {
	ok, err := s.removeViewer(ctx, in.ID)
	if !ok {
		return nil, api.NotFound("path.id", in.ID, "there is no viewer with this identifier; list the viewers to see theirs")
	}
	if err != nil {
		return nil, api.Unavailable("the viewer is removed, but not all switches have stopped copying to it yet: %v", err)
	}
	return nil, nil
}
