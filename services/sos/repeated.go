package sos

import (
	"context"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// overTimeout is how long a first packet is held for a client that reuses a port, until
// nothing is left of the port's previous connection. The longest case is that the end hosts
// are being reset.
const overTimeout = resetTimeout + 2*undoTimeout

// handleRepeated decides about a first packet of a connection that has a session. While the
// client's agent still has the session, the packet goes to the agent: either the client
// repeated it, or the client has forgotten the connection, and then the agent's machine
// answers as the server's would. If the initial sequence number is a new one, the client
// has reused its port; then the packet is also held, because the session will soon be over.
// A late copy of an ended connection's packet is dropped.
func (s *setups) handleRepeated(old *session, o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	_, done := old.ended[agentapi.RoleClient]
	live := old.state == StateLive && !done
	late := old.clientClosed() && old.isn == o.isn
	returns := (!live || old.isn != o.isn && old.isn != 0) && !late && !old.nextWaiting
	old.nextWaiting = old.nextWaiting || returns
	layout, limit := old.Layout, s.config.setupTime()
	s.mu.Unlock()
	if live && layout.ClientSide.PuntsSYN {
		s.releaseFirstPacket(old, layout, o.at, p.Output)
	}
	if returns {
		held, err := p.Hold(overTimeout + limit + undoReserve)
		if err != nil || !s.start(func(run context.Context) { s.setUpAfter(run, old, o, entry, held) }) {
			s.metrics.refused.WithLabelValues("hold").Inc()
		}
	}
	return network.Stop
}

// setUpAfter sets a connection up once the previous session with its ports is over.
func (s *setups) setUpAfter(ctx context.Context, old *session, o offer, entry *Entry, held Held) {
	if !await(ctx, old.over, overTimeout) {
		held.Drop() // the client will repeat it
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
		held.Drop() // another packet of the same connection is held
	}
}
