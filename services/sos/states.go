package sos

import (
	"fmt"
	"log/slog"
)

// State is the state of a session.
type State string

// The states, in order.
const (
	StateSetup     State = "setup"     // the client's first packet is being held
	StateLive      State = "live"      // rules are in place, the agents carry the connection
	StateResetting State = "resetting" // an agent was lost; its end host is being told
	StateEnding    State = "ending"    // the agents are done; rules are being removed
	StateEnded     State = "ended"
)

// transition is a change of a session's state, and its cause.
type transition struct {
	from, to State // empty where the session begins
	when     string
}

// transitions lists all transitions that exist; docs/topics/sos.md prints them.
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

// reportInvalidTransition reports a transition that does not exist, which is a bug in this
// package.
var reportInvalidTransition = func(err error) { slog.Error("a fault of SOS", "error", err) }

// enter changes the session's state. It refuses a state that cannot follow; the session
// then keeps its state. The service's lock is held, or the session is not shared yet.
func (ss *session) enter(to State) {
	for _, t := range transitions {
		if t.from == ss.state && t.to == to {
			ss.state = to
			return
		}
	}
	reportInvalidTransition(fmt.Errorf("session %v of %v cannot go from %q to %q", ss.id, ss.flow, ss.state, to))
}
