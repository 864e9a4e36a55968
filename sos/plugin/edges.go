package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// keyEdges is where switches with punt rules are remembered.
const keyEdges = Name + "/edges/"

// edge is a switch that has been given punt rules. It is remembered over a
// restart, when switches are back long before it shows which of them have hosts:
// their punt rules are then still wanted, and connections go on being noticed.
type edge struct {
	Switch openflow.DatapathID `json:"switch"`
	Flags  bool                `json:"flags"` // it matches TCP flags
}

// rememberEdge stores a switch that has not been stored like this before.
func (s *Service) rememberEdge(ctx context.Context, e edge) {
	s.mu.Lock()
	known, ok := s.edges[e.Switch]
	s.mu.Unlock()
	if ok && known == e {
		return
	}
	if err := s.save(ctx, keyEdges+e.Switch.String(), e); err != nil {
		s.log.Warn("switch cannot be remembered; a restart will write its punt rules again", "switch", e.Switch, "error", err)
		return
	}
	s.mu.Lock()
	s.edges[e.Switch] = e
	s.mu.Unlock()
}

// redeclarePunts brings the punt rules of remembered switches back into the
// ledger; nothing is sent to a switch that has them.
func (s *Service) redeclarePunts(ctx context.Context) {
	s.mu.Lock()
	edges := make([]edge, 0, len(s.edges))
	for _, e := range s.edges {
		edges = append(edges, e)
	}
	s.mu.Unlock()
	for _, e := range edges {
		s.puntResult(e.Switch, s.declarePunts(ctx, e, rule.ApplyOptions{AllowDown: true}))
	}
}

// declarePunts declares the punt rules of one switch.
func (s *Service) declarePunts(ctx context.Context, e edge, options rule.ApplyOptions) error {
	s.mu.Lock()
	list := s.whitelist
	if !s.config.Enabled {
		list = nil
	}
	s.mu.Unlock()
	rules, err := Punts(list, time.Now(), e.Switch, e.Flags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.rules.Apply(ctx, "punt/"+e.Switch.String(), rule.Program{Rules: rules}, options)
}
