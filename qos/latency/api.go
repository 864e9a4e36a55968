package latency

import (
	"context"
	"errors"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
)

// Register adds the classes' operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := service.NewREST(a, "qos")
	service.Show(r, "classes", "List the classes of traffic", s.Classes)
	service.Create(r, "classes", "Request a class of traffic", s.postClass, http.StatusBadGateway)
	service.Register(r, http.MethodGet, "classes/{name}", "Show a class with its paths", s.getClass)
	service.Register(r, http.MethodGet, "classes/{name}/stats", "Show what a class's queues have counted", s.getStats)
	service.Register(r, http.MethodDelete, "classes/{name}", "Release a class, or withdraw it while it is being provisioned", s.deleteClass, http.StatusBadGateway)
}

func (s *Service) postClass(ctx context.Context, in *service.Body[ClassSpec]) (*service.Body[Info], error) {
	class, faults := in.Body.Parse()
	if len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	info, err := s.Add(ctx, in.Body, class)
	if err != nil {
		return nil, answer(err, "body.name", class.Name)
	}
	return &service.Body[Info]{Body: info}, nil
}

func (s *Service) getClass(_ context.Context, in *service.ByName) (*service.Body[Info], error) {
	info, ok := s.Class(in.Name)
	if !ok {
		return nil, answer(ErrUnknown, "path.name", in.Name)
	}
	return &service.Body[Info]{Body: info}, nil
}

func (s *Service) getStats(_ context.Context, in *service.ByName) (*service.Body[Stats], error) {
	stats, ok := s.Stats(in.Name)
	if !ok {
		return nil, answer(ErrUnknown, "path.name", in.Name)
	}
	return &service.Body[Stats]{Body: stats}, nil
}

func (s *Service) deleteClass(ctx context.Context, in *service.ByName) (*service.Nothing, error) {
	return nil, answer(s.Delete(ctx, in.Name), "path.name", in.Name)
}

// answer turns an error into a problem document. location and value name what the
// request was about.
func answer(err error, location string, value any) error {
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCleanupPending):
		return api.Unavailable("it could not be done as it should: %v", err)
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
