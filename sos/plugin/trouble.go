package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Errors says what does not work now: a line for each, with cause and remedy, in order.
func (s *Service) Errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.troubles(time.Now())
}

// troubles is Errors with the lock held.
func (s *Service) troubles(now time.Time) []string {
	lines := []string{}
	for _, a := range s.agents {
		lines = append(lines, s.agentTroubles(a)...)
	}
	for dpid, text := range s.puntErrs {
		lines = append(lines, "switch "+dpid.String()+" takes no punt rules: "+text+": connections from there go directly; make room in its tables, or leave it out of the path")
	}
	lines = append(lines, s.idleTroubles(now)...)
	slices.Sort(lines)
	return lines
}

// idleTroubles says why no connection is taken though agents or whitelist are there. The
// lock is held.
func (s *Service) idleTroubles(now time.Time) []string {
	var lines []string
	active := slices.ContainsFunc(s.whitelist, func(e Entry) bool { return e.Active(now) })
	switch {
	case len(s.agents)+len(s.whitelist) == 0:
		return nil // nobody wants anything of it
	case !s.config.Enabled:
		lines = append(lines, "SOS is disabled: every new connection goes directly; \"sluice sos enable\"")
	case len(s.whitelist) == 0:
		lines = append(lines, "the whitelist is empty: every connection goes directly; \"sluice sos whitelist add\" says which do not")
	case !active:
		lines = append(lines, fmt.Sprintf("none of the whitelist's %d entries is active now: every connection goes directly; look at the times in \"sluice sos whitelist list\"", len(s.whitelist)))
	}
	if len(s.whitelist) > 0 && len(s.agents) < 2 {
		lines = append(lines, "fewer than two agents: every connection goes directly; add one near each end with \"sluice sos agents add\"")
	}
	return lines
}

// agentTroubles says what is wrong with an agent. The lock is held.
func (s *Service) agentTroubles(a *agent) []string {
	var lines []string
	say := func(format string, args ...any) {
		lines = append(lines, "agent "+a.record.Name+" "+fmt.Sprintf(format, args...))
	}
	switch {
	case a.liveness != AgentUp && s.opts.AgentTLS == nil && strings.HasPrefix(a.record.URL, "https:"):
		say("cannot be asked at %s: the controller has no certificate for agents on other machines (%s); set sos.tls.cert, key and ca in its configuration and restart it", a.record.URL, cause(a.err))
	case a.liveness != AgentUp:
		say("is %s at %s: %s; check that it runs, that its control.listen is that address, and that nothing between drops it", a.liveness, a.record.URL, cause(a.err))
	case a.mismatch() != "":
		say("%s", a.mismatch())
	default:
		lines = append(lines, a.unplacedTroubles()...)
	}
	if c := a.claim; c != nil {
		say("announces itself at %s with data addresses %v, but is known at %s with %v; correct its configuration, or have it announce itself anew after \"sluice sos agents remove %s\"",
			c.URL, c.Addrs, a.record.URL, a.record.Addrs, a.record.Name)
	}
	if a.unplugged {
		say("is unplugged: the switch says that its port is down; look at the cable and at the agent's data interface")
	}
	return lines
}

// unplacedTroubles names the data addresses on which no host is known. An agent is
// looked for when it has told its ports, so that one which is new is not named.
func (a *agent) unplacedTroubles() []string {
	var lines []string
	for _, addr := range a.record.Addrs {
		if _, found := a.places[addr]; !found && a.missed[addr] {
			lines = append(lines, fmt.Sprintf("agent %s is not placed: no host answers for its data address %v; check that the agent's data interface has it, is up, and is on a port of a switch of this controller",
				a.record.Name, addr))
		}
	}
	return lines
}

// cause is an error's text, or that none is known yet.
func cause(text string) string {
	if text == "" {
		return "it has not answered yet"
	}
	return text
}

// claim is what an agent announced that is known otherwise.
type claim struct {
	URL   string
	Addrs []netip.Addr
}
