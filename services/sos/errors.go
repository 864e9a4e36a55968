package sos

import (
	"fmt"
	"slices"
	"time"
)

// Errors returns what does not work now: sorted lines, each with a cause and a remedy.
func (s *Service) Errors() []string {
	lines := append(s.serviceErrors(), s.agents.Problems()...)
	for dpid, text := range s.selection.punts.failures() {
		lines = append(lines, "switch "+dpid+" takes no punt rules: "+text+": connections from there go directly; make room in its tables, or leave it out of the path")
	}
	slices.Sort(lines)
	return lines
}

// serviceErrors returns why no connection is taken although agents or whitelist entries
// exist.
func (s *Service) serviceErrors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, lines := time.Now(), []string{}
	active := slices.ContainsFunc(s.selection.whitelist, func(e Entry) bool { return e.Active(now) })
	switch {
	case len(s.agents.List())+len(s.selection.whitelist) == 0:
		return lines // SOS is not in use
	case !s.config.Enabled:
		lines = append(lines, "SOS is disabled: every new connection goes directly; \"sluice sos enable\"")
	case len(s.selection.whitelist) == 0:
		lines = append(lines, "the whitelist is empty: every connection goes directly; \"sluice sos whitelist add\" says which do not")
	case !active:
		lines = append(lines, fmt.Sprintf("none of the whitelist's %d entries is active now: every connection goes directly; look at the times in \"sluice sos whitelist list\"", len(s.selection.whitelist)))
	}
	if len(s.selection.whitelist) > 0 && len(s.agents.List()) < 2 {
		lines = append(lines, "fewer than two agents: every connection goes directly; add one near each end with \"sluice sos agents add\"")
	}
	return lines
}
