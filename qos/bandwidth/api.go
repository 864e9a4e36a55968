package bandwidth

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
)

const base = api.Prefix + "/qos/"

// Register adds the operations and metrics of critical flows to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	h := a.Huma()
	huma.Register(h, operation("qos-critical-get", http.MethodGet, "critical", "List the definitions of critical traffic"), s.getDefinitions)
	add := operation("qos-critical-post", http.MethodPost, "critical", "Define critical traffic")
	add.DefaultStatus = http.StatusCreated
	huma.Register(h, add, s.postDefinition)
	huma.Register(h, operation("qos-critical-name-delete", http.MethodDelete, "critical/{name}", "Withdraw a definition; its flows are not critical any more"), s.deleteDefinition)
	huma.Register(h, operation("qos-flows-get", http.MethodGet, "flows", "List the critical flows, with their paths or the reason why they have no promise"), s.getFlows)
}

func operation(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: base + path, Summary: summary, Tags: []string{"qos"},
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}
}

type body[T any] struct{ Body T }

type nothing struct{}

func (s *Service) getDefinitions(context.Context, *nothing) (*body[[]Spec], error) {
	return &body[[]Spec]{s.Definitions()}, nil
}

func (s *Service) postDefinition(ctx context.Context, in *body[Spec]) (*body[Spec], error) {
	d, faults := in.Body.Parse()
	if len(faults) > 0 {
		fields := make([]api.Field, len(faults))
		for i, f := range faults {
			fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
		}
		return nil, api.InvalidFields(fields)
	}
	if err := s.Define(ctx, d); err != nil {
		return nil, answer(err, "body.name", d.Name)
	}
	return &body[Spec]{d.Spec}, nil
}

// ByName is the path of what is done to one definition. (Exported, or huma could not
// read it.)
type ByName struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the definition"`
}

func (s *Service) deleteDefinition(ctx context.Context, in *ByName) (*nothing, error) {
	return nil, answer(s.Withdraw(ctx, in.Name), "path.name", in.Name)
}

func (s *Service) getFlows(context.Context, *nothing) (*body[[]Record], error) {
	return &body[[]Record]{s.Flows()}, nil
}

// answer turns an error of a change into a problem document.
func answer(err error, location string, value any) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnknown):
		return api.NotFound(location, value, err.Error())
	case errors.Is(err, ErrExists), errors.Is(err, ErrTooMany):
		return api.Conflict(location, value, err.Error())
	}
	return api.Unavailable("nothing was changed: %v", err)
}
