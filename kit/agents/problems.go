package agents

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Problems returns a line for each problem that an agent has now, with its cause and remedy.
func (r *Registry[C, R, L]) Problems() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		for _, line := range a.problems(r.Commands, r.Certificate) {
			lines = append(lines, "agent "+a.Name+" "+line)
		}
	}
	return lines
}

// problems returns a line for each problem of an agent. commands begins the operator's commands for
// agents. certificate reports whether the controller has a certificate for agents. The lock is
// held.
func (a *Agent[C]) problems(commands string, certificate bool) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	s, cause := &a.state, cmp.Or(a.state.Error, "it has not answered yet")
	switch {
	case s.Liveness != Up && !certificate && strings.HasPrefix(s.URL, "https:"):
		say("cannot be asked at %s: the controller has no certificate for agents on other machines (%s); set agents.tls.cert, key and ca in its configuration and restart it", s.URL, cause)
	case s.Liveness != Up:
		say("is %s at %s: %s; check that it runs, that its control.listen is that address, and that nothing between drops it", s.Liveness, s.URL, cause)
	case s.mismatch() != "":
		say("%s", s.mismatch())
	default:
		// Only a search that has failed sets a.missed, and a search begins when the agent has been
		// heard. So an agent that has just been added is not reported.
		for _, addr := range s.Addrs {
			if _, found := s.Places[addr]; !found && a.missed[addr] {
				say("is not placed: no host answers for its data address %v; check that the agent's data interface has it, is up, and is on a port of a switch of this controller", addr)
			}
		}
	}
	if c := a.claim; c != nil {
		say("announces itself at %s with data addresses %v, but is known at %s with %v; correct its configuration, or have it announce itself anew after \"%s remove %s\"",
			c.URL, c.Addrs, s.URL, s.Addrs, commands, a.Name)
	}
	if found, remedy := a.drift.problem(&s.Status, time.Now()); found != "" && s.Liveness == Up {
		say("%s; %s", found, remedy)
	}
	if s.Unplugged {
		say("is unplugged: the switch says that its port is down; look at the cable and at the agent's data interface")
	}
	return lines
}
