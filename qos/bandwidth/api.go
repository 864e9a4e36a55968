package bandwidth

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/service"
)

// Register adds the operations and metrics of critical flows to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := service.NewREST(a, "qos")
	definitions := service.Resource[*Definition, Spec, DefinitionInfo]{
		Collection: s.Definitions, Path: "critical", Field: "name", Show: s.show,
		Parse: func(_ string, spec Spec) (string, *Definition, error) {
			d, faults := spec.Parse()
			return spec.Name, d, faults.Err()
		},
	}
	definitions.Register(r)
	service.Show(r, "flows", "List the critical flows, with their paths or the reason why they have no promise", s.Flows)
	service.Show(r, "refusals", "List the switches that do not recognise critical flows, with the reason", s.Refusals)
}
