package plugin

import (
	"context"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// overIn is how long the first packet of a connection is held whose port the client
// has used for another just before, until nothing of that one is left. Where its end
// hosts are being reset, that takes longest.
const overIn = resetFor + 2*undoTimeout

// again decides about a first packet of a connection that has a session. As long as
// the agent has it too, the packet goes there: the client has sent it again, or has
// forgotten the connection, and then the agent's machine answers as the server's
// would. One of another connection, by its initial sequence number, is held besides:
// the client has come back to its port, and the session will soon be over. A late copy
// of a connection's that is over goes nowhere.
func (s *setups) again(old *session, o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	_, done := old.ended[agentapi.RoleClient]
	live := old.state == StateLive && !done
	late := old.carried() && old.isn == o.isn
	returns := (!live || old.isn != o.isn && old.isn != 0) && !late && !old.awaited
	old.awaited = old.awaited || returns
	layout, limit := old.Layout, s.config.setupTime()
	s.mu.Unlock()
	if live && layout.ClientSide.PuntsSYN {
		s.open(old, layout, o.at, p.Output)
	}
	if returns {
		held, err := p.Hold(overIn + limit + heldExtra)
		if err != nil || !s.start(func(run context.Context) { s.succeed(run, old, o, entry, held) }) {
			s.metrics.refused.WithLabelValues("hold").Inc()
		}
	}
	return network.Stop
}

// succeed sets a connection up as soon as the session before it is over.
func (s *setups) succeed(ctx context.Context, old *session, o offer, entry *Entry, held Held) {
	if !await(ctx, old.over, overIn) {
		held.Drop() // the client will send it again
		return
	}
	s.mu.Lock()
	ss, verdict := s.sessions.admit(o, entry)
	s.mu.Unlock()
	switch {
	case ss != nil:
		s.run(ctx, ss, o, held)
	case verdict == network.Continue:
		if err := held.Forward(); err != nil {
			s.log.Warn("first packet could not be forwarded", "flow", o.flow, "error", err)
		}
	default:
		held.Drop() // another is held for the same connection
	}
}
