package plugin

import (
	"fmt"
	"slices"
	"time"
)

// Errors says what does not work now: a line for each, with cause and remedy, in order.
func (s *Service) Errors() []string {
	lines := append(s.idle(), s.agents.Troubles()...)
	for dpid, text := range s.selection.punts.failures() {
		lines = append(lines, "switch "+dpid+" takes no punt rules: "+text+": connections from there go directly; make room in its tables, or leave it out of the path")
	}
	slices.Sort(lines)
	return lines
}

// idle says why no connection is taken though agents or whitelist are there.
func (s *Service) idle() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, lines := time.Now(), []string{}
	active := slices.ContainsFunc(s.selection.whitelist, func(e Entry) bool { return e.Active(now) })
	switch {
	case len(s.agents.List())+len(s.selection.whitelist) == 0:
		return lines // nobody wants anything of it
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
