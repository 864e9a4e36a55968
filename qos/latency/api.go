package latency

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/match"
)

const base = api.Prefix + "/qos/classes"

// Register adds the classes' operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	h := a.Huma()
	huma.Register(h, operation("qos-classes-get", http.MethodGet, "", "List the classes of traffic"), s.getClasses)
	add := operation("qos-classes-post", http.MethodPost, "", "Request a class of traffic")
	add.DefaultStatus = http.StatusCreated
	huma.Register(h, add, s.postClass)
	huma.Register(h, operation("qos-classes-name-get", http.MethodGet, "/{name}", "Show a class with its paths"), s.getClass)
	huma.Register(h, operation("qos-classes-name-stats-get", http.MethodGet, "/{name}/stats", "Show what a class's queues have counted"), s.getStats)
	huma.Register(h, operation("qos-classes-name-delete", http.MethodDelete, "/{name}", "Release a class, or withdraw it while it is being provisioned"), s.deleteClass)
}

func operation(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: base + path, Summary: summary, Tags: []string{"qos"},
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusBadGateway, http.StatusServiceUnavailable},
	}
}

type body[T any] struct{ Body T }

type nothing struct{}

// ByName is the path of what is done to one class. (Exported, or huma could not read it.)
type ByName struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the class"`
}

func (s *Service) getClasses(context.Context, *nothing) (*body[[]Info], error) {
	return &body[[]Info]{s.Classes()}, nil
}

func (s *Service) postClass(ctx context.Context, in *body[ClassSpec]) (*body[Info], error) {
	class, faults := in.Body.Parse()
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	info, err := s.Add(ctx, in.Body, class)
	if err != nil {
		return nil, answer(err, "body.name", class.Name)
	}
	return &body[Info]{info}, nil
}

func (s *Service) getClass(_ context.Context, in *ByName) (*body[Info], error) {
	info, ok := s.Class(in.Name)
	if !ok {
		return nil, answer(ErrUnknown, "path.name", in.Name)
	}
	return &body[Info]{info}, nil
}

func (s *Service) getStats(_ context.Context, in *ByName) (*body[Stats], error) {
	stats, ok := s.Stats(in.Name)
	if !ok {
		return nil, answer(ErrUnknown, "path.name", in.Name)
	}
	return &body[Stats]{stats}, nil
}

func (s *Service) deleteClass(ctx context.Context, in *ByName) (*nothing, error) {
	return nil, answer(s.Delete(ctx, in.Name), "path.name", in.Name)
}

// refuse turns faults of a specification into a problem document.
func refuse(faults []match.Fault) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
	}
	return api.InvalidFields(fields)
}

// answer turns an error into a problem document. location and value name what the
// request was about.
func answer(err error, location string, value any) error {
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return api.Conflict("body."+refusal.Field, refusal.Value, refusal.Why)
	case errors.Is(err, ErrUnknown):
		return api.NotFound(location, value, "no such class; list them to see what is there")
	case errors.Is(err, ErrExists), errors.Is(err, ErrFull), errors.Is(err, ErrWithdrawn):
		return api.Conflict(location, value, err.Error())
	case errors.Is(err, network.ErrRefused):
		return api.Refused("a switch has refused the rules, nothing remains: %v", err)
	default:
		return api.Unavailable("it could not be done now, and nothing remains of the attempt: %v", err)
	}
}
