package critical

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Register adds the operations and metrics of critical flows to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, "qos")
	definitions := kit.Resource[*Definition, Spec, DefinitionInfo]{
		Collection: s.Definitions, Path: "critical", Field: "name", Show: s.show,
		Parse: func(_ string, spec Spec) (string, *Definition, error) {
			d, faults := spec.Parse()
			return spec.Name, d, faults.Err()
		},
	}
	definitions.Register(r)
	kit.Show(r, "flows", "List the critical flows, with their paths or the reason why they have no promise", s.Flows)
	kit.Show(r, "refusals", "List the switches that do not recognise critical flows, with the reason", s.punts.Refusals)
}

// definitionsChanged ends the flows of definitions that were removed or changed, including flows
// that are being placed. If a definition still selects such a flow, the flow's next packet makes
// the controller place it again.
func (s *Service) definitionsChanged(ctx context.Context, changes []kit.Change[*Definition]) {
	over := s.flows.all(func(f *flow) bool {
		return slices.ContainsFunc(changes, func(c kit.Change[*Definition]) bool { return c.Name == f.Definition })
	})
	for _, f := range over {
		f.cancel()
	}
	s.punts.install(ctx)
	each(over, func(f *flow) { s.placer.end(f, "its definition was changed or removed") })
}

// DefinitionInfo is a definition as the API shows it.
type DefinitionInfo struct {
	Spec
	Origin string   `json:"origin" enum:"file,api" doc:"Where it is declared and can be changed: the configuration file or the API"`
	Notes  []string `json:"notes,omitempty" doc:"Flows without a promise although nothing is wrong, because another service handles their packets"`
}

// show returns definitions as the API shows them.
func (s *Service) show(all []kit.Item[*Definition]) []DefinitionInfo {
	out, matches := make([]DefinitionInfo, len(all)), make([][]openflow.Match, len(all))
	for i, x := range all {
		out[i] = DefinitionInfo{Spec: x.Value.Spec, Origin: api.Origin(x.Configured)}
		matches[i] = x.Value.Matches
	}
	for i, over := range s.Rules.Shadowed(network.StageWay, rule.WayCriticalCopy, matches) {
		out[i].Notes = rule.Notes(over, "nothing is promised to those that it takes")
	}
	return out
}
