package classes

import (
	"context"
	"errors"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
)

// Register adds the classes' operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, "qos")
	classes := kit.Resource[*Class, ClassSpec, Info]{
		Collection: s.Declared, Path: "classes", Field: "name", Undeclared: s.Withdraw,
		Admit: func(ctx context.Context, _ string, c *Class) error {
			_, err := s.Add(ctx, *c)
			return answer(err, "body.name", c.Name)
		},
		Show: func(all []kit.Item[*Class]) (out []Info) {
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
	kit.Show(r, "classes", "List the classes of traffic, those that are being provisioned, too", s.Classes)
	kit.Register(r, http.MethodGet, "classes/{name}", "Show a class with its paths", s.getClass)
	kit.Register(r, http.MethodGet, "classes/{name}/stats", "Show what a class's queues have counted", s.getStats)
	classes.RegisterChanges(r)
}

func (s *Service) getClass(_ context.Context, in *kit.ByName) (*kit.Shown[Info], error) {
	info, ok := s.Class(in.Name)
	if !ok {
		return nil, answer(kit.ErrUnknown, "path.name", in.Name)
	}
	out := &kit.Shown[Info]{Body: info}
	if x, declared := s.Declared.Item(in.Name); declared {
		out.ETag = kit.Tag(x.Revision)
	}
	return out, nil
}

func (s *Service) getStats(_ context.Context, in *kit.ByName) (*kit.Body[Stats], error) {
	stats, ok := s.Stats(in.Name)
	if !ok {
		return nil, answer(kit.ErrUnknown, "path.name", in.Name)
	}
	return &kit.Body[Stats]{Body: stats}, nil
}

// answer converts an error to a problem document of the API. location and value name the part of
// the request that the error is about.
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
	return kit.Problem(err, location, value)
}
