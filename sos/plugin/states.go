package plugin

import (
	"fmt"
	"log/slog"
)

// State is where a session stands.
type State string

// The states, in order.
const (
	StateSetup     State = "setup"     // the client's first packet is being held
	StateLive      State = "live"      // rules are in place, the agents carry the connection
	StateResetting State = "resetting" // an agent was lost; its end host is being told
	StateEnding    State = "ending"    // the agents are done; rules are being removed
	StateEnded     State = "ended"
)

// transition is a change of a session's state, and what brings it about.
type transition struct {
	from, to State // from is empty where the session begins
	when     string
}

// transitions are all that there are; docs/topics/sos.md prints them.
var transitions = []transition{
	{"", StateSetup, "a whitelisted connection's first packet is held, or both agents know the session after a restart of the controller"},
	{"", StateResetting, "after a restart of the controller one agent knows it alone"},
	{StateSetup, StateLive, "the switches have its rules and both agents are ready"},
	{StateSetup, StateEnded, "its set-up failed; the connection goes directly"},
	{StateLive, StateEnding, "both agents are done, and their end hosts know it"},
	{StateLive, StateResetting, "an agent is lost, or ended without its end host's knowledge"},
	{StateEnding, StateEnded, "its last segments are acknowledged, and its rules gone"},
	{StateResetting, StateEnded, "the end hosts are told, or were waited for long enough, and its rules gone"},
}

// refused takes in a transition that does not exist, which is a fault of this package.
var refused = func(err error) { slog.Error("a fault of SOS", "error", err) }

// enter takes the session to a state. One that cannot follow is refused, and the session
// stays where it is. The service's lock is held, or nobody else knows the session yet.
func (ss *session) enter(to State) {
	for _, t := range transitions {
		if t.from == ss.state && t.to == to {
			ss.state = to
			return
		}
	}
	refused(fmt.Errorf("session %v of %v cannot go from %q to %q", ss.id, ss.flow, ss.state, to))
}
