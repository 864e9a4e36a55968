package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/qos/rest"
)

// Register adds the operations and metrics of critical flows to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	h := a.Huma()
	huma.Register(h, rest.Operation("qos-critical-get", http.MethodGet, "critical", "List the definitions of critical traffic"), s.getDefinitions)
	add := rest.Operation("qos-critical-post", http.MethodPost, "critical", "Define critical traffic")
	add.DefaultStatus = http.StatusCreated
	huma.Register(h, add, s.postDefinition)
	huma.Register(h, rest.Operation("qos-critical-name-delete", http.MethodDelete, "critical/{name}", "Withdraw a definition; its flows are not critical any more"), s.deleteDefinition)
	huma.Register(h, rest.Operation("qos-flows-get", http.MethodGet, "flows", "List the critical flows, with their paths or the reason why they have no promise"), s.getFlows)
	huma.Register(h, rest.Operation("qos-refusals-get", http.MethodGet, "refusals", "List the switches that do not recognise critical flows, with the reason"), s.getRefusals)
}

func (s *Service) getDefinitions(context.Context, *rest.Nothing) (*rest.Body[[]DefinitionInfo], error) {
	return &rest.Body[[]DefinitionInfo]{Body: s.Definitions()}, nil
}

func (s *Service) postDefinition(ctx context.Context, in *rest.Body[Spec]) (*rest.Body[DefinitionInfo], error) {
	d, faults := in.Body.Parse()
	if len(faults) > 0 {
		return nil, rest.Refuse(faults)
	}
	if err := s.Define(ctx, d); err != nil {
		return nil, answer(err, "body.name", d.Name)
	}
	return &rest.Body[DefinitionInfo]{Body: DefinitionInfo{Spec: d.Spec, Origin: api.OriginAPI}}, nil
}

func (s *Service) deleteDefinition(ctx context.Context, in *rest.ByName) (*rest.Nothing, error) {
	return nil, answer(s.Withdraw(ctx, in.Name), "path.name", in.Name)
}

func (s *Service) getFlows(context.Context, *rest.Nothing) (*rest.Body[[]Record], error) {
	return &rest.Body[[]Record]{Body: s.Flows()}, nil
}

func (s *Service) getRefusals(context.Context, *rest.Nothing) (*rest.Body[[]Refusal], error) {
	return &rest.Body[[]Refusal]{Body: s.Refusals()}, nil
}

// answer turns an error of a change into a problem document.
func answer(err error, location string, value any) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConfigured):
		return api.Configured(location, value, fmt.Sprintf("qos.critical.%v", value))
	case errors.Is(err, ErrUnknown):
		return api.NotFound(location, value, err.Error())
	case errors.Is(err, ErrExists), errors.Is(err, ErrTooMany):
		return api.Conflict(location, value, err.Error())
	}
	return api.Unavailable("nothing was changed: %v", err)
}
