package bandwidth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// What a change of the definitions can be refused for.
var (
	ErrExists     = errors.New("there is a definition of this name: delete it first, or choose another name")
	ErrConfigured = errors.New("the definition stands in the configuration")
	ErrUnknown    = errors.New("there is no definition of this name")
	ErrTooMany    = fmt.Errorf("there are %d definitions, which is the most", MaxDefinitions)
)

// Define adds a definition.
func (s *Service) Define(ctx context.Context, d *Definition) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	i, there := s.index(d.Name)
	n := len(s.definitions)
	s.mu.Unlock()
	switch {
	case there && s.definitions[i].Configured:
		return ErrConfigured
	case there:
		return ErrExists
	case n >= MaxDefinitions:
		return ErrTooMany
	}
	if err := s.storeDefinition(ctx, d); err != nil {
		return err
	}
	s.add(d)
	s.refreshView()
	s.applyPunts(context.WithoutCancel(ctx)) // it is stored: who asked may have gone
	s.publish("critical-added", d.Spec)
	return nil
}

// Withdraw removes a definition and ends its flows, those that are being placed, too.
func (s *Service) Withdraw(ctx context.Context, name string) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	i, there := s.index(name)
	s.mu.Unlock()
	switch {
	case !there:
		return ErrUnknown
	case s.definitions[i].Configured: // s.changes is locked
		return ErrConfigured
	}
	if err := s.store.Delete(ctx, definitionKey(name)); err != nil {
		return err
	}
	over := s.remove(name)
	s.refreshView()
	s.applyPunts(context.WithoutCancel(ctx))
	each(over, func(f *flow) { s.end(f, "its definition was withdrawn") })
	s.publish("critical-removed", map[string]any{"name": name, "flows": len(over)})
	return nil
}

// remove takes a definition out and returns its flows, which are over. Those that are
// being placed are given up.
func (s *Service) remove(name string) (over []*flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, there := s.index(name); there {
		s.definitions = slices.Delete(slices.Clone(s.definitions), i, i+1)
	}
	for _, f := range s.flows {
		if f.definition == name {
			f.cancel()
			over = append(over, f)
		}
	}
	return over
}

// index finds a definition by its name. The lock is held.
func (s *Service) index(name string) (int, bool) {
	return slices.BinarySearchFunc(s.definitions, name, func(d *Definition, name string) int { return cmp.Compare(d.Name, name) })
}

// add enters a definition that has been stored.
func (s *Service) add(d *Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, there := s.index(d.Name)
	if !there {
		s.definitions = slices.Insert(slices.Clone(s.definitions), i, d)
	}
}

// refreshView publishes the definitions for the packet-in handler.
func (s *Service) refreshView() {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := s.definitions // the field itself is changed under the lock
	s.view.Store(&view)
}

// applyPunts brings the rules for first packets into every switch. s.changes is locked.
func (s *Service) applyPunts(ctx context.Context) {
	s.mu.Lock()
	definitions, before := s.definitions, s.puntErrs
	s.mu.Unlock()
	refused := s.rules.EverySwitch(ctx, "punt", func(d openflow.DatapathID) network.Program { return punts(d, definitions) })
	errs := map[openflow.DatapathID]string{}
	for d, err := range refused {
		errs[d] = err.Error()
		if before[d] != err.Error() {
			s.log.Warn("critical flows that enter here are not recognised", "switch", d, "error", err)
			s.publish("critical-refused", Refusal{d, err.Error()})
		}
	}
	s.mu.Lock()
	s.puntErrs = errs
	s.mu.Unlock()
}

// repeatPunts tries again where the rules for first packets are missing.
func (s *Service) repeatPunts(ctx context.Context) {
	if !s.changes.TryLock() {
		return // an operator's change does the same
	}
	defer s.changes.Unlock()
	if len(s.Refusals()) > 0 {
		s.applyPunts(ctx)
	}
}

// DefinitionInfo is a definition as the API shows it.
type DefinitionInfo struct {
	Spec
	Origin string   `json:"origin" enum:"file,api" doc:"Where it stands, and is changed: the configuration file or the API"`
	Notes  []string `json:"notes,omitempty" doc:"What of its traffic nothing is promised to though nothing is wrong: packets that another service has"`
}

// Definitions lists what has been defined, by name.
func (s *Service) Definitions() []DefinitionInfo {
	s.mu.Lock()
	out, matches := []DefinitionInfo{}, [][]openflow.Match{}
	for _, d := range s.definitions {
		out = append(out, DefinitionInfo{Spec: d.Spec, Origin: api.Origin(d.Configured)})
		matches = append(matches, d.Matches)
	}
	s.mu.Unlock()
	for i, over := range s.rules.Overruled(network.StageClassify, rule.ClassifyCriticalCopy, matches) {
		out[i].Notes = rule.Notes(over, "nothing is promised to those that it takes")
	}
	return out
}

// Flows lists the flows, those first that came first.
func (s *Service) Flows() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		all = append(all, f)
	}
	sortFlows(all)
	out := make([]Record, len(all))
	for i, f := range all {
		out[i] = f.record()
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
	for d, reason := range s.puntErrs {
		out = append(out, Refusal{d, reason})
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Compare(a.Switch, b.Switch) })
	return out
}
