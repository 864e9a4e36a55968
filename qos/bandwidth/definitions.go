package bandwidth

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// MaxDefinitions bounds the definitions; each is rules on every switch.
const MaxDefinitions = 256

// collect returns the collection of the definitions.
func (s *Service) collect(o Options) *service.Collection[*Definition] {
	return service.NewCollection(service.Options[*Definition]{
		Kind: service.Kind[*Definition]{
			Noun: "definition", Nouns: "definitions of critical traffic", Prefix: "qos/critical/", Event: "critical", Most: MaxDefinitions,
			Encode: func(d *Definition) any { return d.Spec },
			Decode: func(b []byte) (*Definition, error) {
				var spec Spec
				if err := json.Unmarshal(b, &spec); err != nil {
					return nil, err
				}
				d, faults := spec.Parse()
				return d, faults.Err()
			},
		},
		Store: o.Store, Log: o.Log, Publish: o.Publish, Changed: s.redefine,
	})
}

// redefine ends the flows of definitions that have gone or changed, those that are being
// placed, too. What goes on of them is placed anew by its next packet.
func (s *Service) redefine(ctx context.Context, changes []service.Change[*Definition]) {
	var over []*flow
	s.mu.Lock()
	for _, f := range s.flows {
		if slices.ContainsFunc(changes, func(c service.Change[*Definition]) bool { return c.Name == f.definition }) {
			f.cancel()
			over = append(over, f)
		}
	}
	s.mu.Unlock()
	s.applyPunts(ctx)
	each(over, func(f *flow) { s.end(f, "its definition was changed or removed") })
}

// applyPunts brings the rules for first packets into every switch.
func (s *Service) applyPunts(ctx context.Context) {
	s.punting.Lock()
	defer s.punting.Unlock()
	definitions, moving := s.Definitions.Values(), s.net.Moving()
	refused := s.rules.EverySwitch(ctx, "punt", func(d openflow.DatapathID) network.Program {
		p := punts(d, definitions)
		p.Rules = append(p.Rules, borderPunts(d, definitions, moving)...)
		return p
	})
	s.mu.Lock()
	before := s.refused
	s.refused, s.asked = refused, moving
	s.mu.Unlock()
	for d, err := range refused {
		if was := before[d]; was == nil || was.Error() != err.Error() {
			s.log.Warn("critical flows that enter here are not recognised", "switch", d, "error", err)
			s.publish("critical.refused", Refusal{d, err.Error()})
		}
	}
}

// DefinitionInfo is a definition as the API shows it.
type DefinitionInfo struct {
	Spec
	Origin string   `json:"origin" enum:"file,api" doc:"Where it stands, and is changed: the configuration file or the API"`
	Notes  []string `json:"notes,omitempty" doc:"What its flows have not though nothing is wrong: those whose packets another service has"`
}

// show is how the API shows definitions.
func (s *Service) show(all []service.Item[*Definition]) []DefinitionInfo {
	out, matches := make([]DefinitionInfo, len(all)), make([][]openflow.Match, len(all))
	for i, x := range all {
		out[i] = DefinitionInfo{Spec: x.Value.Spec, Origin: api.Origin(x.Configured)}
		matches[i] = x.Value.Matches
	}
	for i, over := range s.rules.Overruled(network.StageWay, rule.WayCriticalCopy, matches) {
		out[i].Notes = rule.Notes(over, "nothing is promised to those that it takes")
	}
	return out
}

// Refusal is a switch that has not taken the rules for first packets.
type Refusal struct {
	Switch openflow.DatapathID `json:"switch" doc:"Where critical flows enter unrecognised, and go like any traffic"`
	Reason string              `json:"reason"`
}

// Refusals lists the switches that have not taken the rules for first packets. It is
// tried again at each reading of the counters.
func (s *Service) Refusals() []Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Refusal{}
	for d, err := range s.refused {
		out = append(out, Refusal{d, err.Error()})
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Compare(a.Switch, b.Switch) })
	return out
}
