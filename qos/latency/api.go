package latency

import (
	"context"
	"errors"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/service"
)

// Register adds the classes' operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := service.NewREST(a, "qos")
	classes := service.Resource[*Class, ClassSpec, Info]{
		Collection: s.Declared, Path: "classes", Field: "name", Undeclared: s.Withdraw,
		Admit: func(ctx context.Context, _ string, c *Class) error {
			_, err := s.Add(ctx, *c)
			return answer(err, "body.name", c.Name)
		},
		Show: func(all []service.Item[*Class]) (out []Info) {
			for _, x := range all {
				info, _ := s.Class(x.Name)
				out = append(out, info)
			}
			return out
		},
		Parse: func(_ string, spec ClassSpec) (string, *Class, error) {
			c, faults := spec.Parse()
			return spec.Name, &c, faults.Err()
		},
	}
	service.Show(r, "classes", "List the classes of traffic, those that are being provisioned, too", s.Classes)
	service.Register(r, http.MethodGet, "classes/{name}", "Show a class with its paths", s.getClass)
	service.Register(r, http.MethodGet, "classes/{name}/stats", "Show what a class's queues have counted", s.getStats)
	classes.RegisterChanges(r)
}

func (s *Service) getClass(_ context.Context, in *service.ByName) (*service.Shown[Info], error) {
	info, ok := s.Class(in.Name)
	if !ok {
		return nil, answer(service.ErrUnknown, "path.name", in.Name)
	}
	out := &service.Shown[Info]{Body: info}
	if x, declared := s.Declared.Item(in.Name); declared {
		out.ETag = service.Tag(x.Revision)
	}
	return out, nil
}

func (s *Service) getStats(_ context.Context, in *service.ByName) (*service.Body[Stats], error) {
	stats, ok := s.Stats(in.Name)
	if !ok {
		return nil, answer(service.ErrUnknown, "path.name", in.Name)
	}
	return &service.Body[Stats]{Body: stats}, nil
}

// answer returns an error as a problem document. location and value say what the request
// was about.
func answer(err error, location string, value any) error {
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCleanupPending):
		return api.Unavailable("it could not be done as it should: %v", err)
	case errors.As(err, &refusal):
		return api.Conflict("body."+refusal.Field, refusal.Value, refusal.Why)
	case errors.Is(err, ErrWithdrawn):
		return api.Conflict(location, value, err.Error())
	}
	return service.Problem(err, location, value)
}
