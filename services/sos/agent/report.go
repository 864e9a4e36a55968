package agent

import (
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// describe returns the session as listings show it.
func (s *session) describe() agentapi.Session {
	counters, marks := s.counters(), s.marks.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Session{
		ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Client: s.req.Client, Server: s.req.Server,
		Peer: s.req.Peer.Addr, Port: s.port, Reply: s.reply, Params: s.params, Started: s.started,
		SetupTime: agentapi.Duration(s.setup), Counters: counters, Context: s.req.Context, Marks: marks,
	}
}

// liveInfo returns the session as the event stream shows it.
func (s *session) liveInfo() agentapi.Live {
	counters := s.counters()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Live{ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Counters: counters}
}

// record returns the record of the session after its end.
func (s *session) record() agentapi.SessionRecord {
	r := agentapi.SessionRecord{Session: s.describe(), Ended: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Reason, r.Detail = s.reason, s.detail
	return r
}

// counters returns the session's figures.
func (s *session) counters() agentapi.Counters {
	conns := *s.conns.Load()
	c := agentapi.Counters{
		ChunksSent: s.out.chunks.Load(), ChunksResent: s.out.resent.Load(),
		ConnsOpen: len(conns), RTTMicros: uint64(s.congestion.rtt.Load() / 1000),
	}
	c.BytesUp, c.BytesDown = s.out.bytes.Load(), s.in.bytes.Load()
	if s.role == roleAcceptor {
		c.BytesUp, c.BytesDown = c.BytesDown, c.BytesUp
	}
	for _, x := range conns {
		c.Retransmits += x.retransmits()
		c.Pace += x.pacer.paceOf(x)
	}
	if text := s.start.Load(); text != nil {
		c.Start = *text
	}
	s.in.mu.Lock()
	c.BufferedBytes, c.WindowBytes = uint64(max(0, s.in.held)), uint64(s.in.window.size)
	c.ReorderChunks = s.in.order.Len()
	s.in.mu.Unlock()
	s.dial.mu.Lock()
	c.ConnsWarm, c.Connections, c.Why = s.dial.warm, s.dial.wanted, s.dial.why
	s.dial.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ConnsLost = s.lost
	c.Retransmits += s.retrans
	if s.role == roleAcceptor {
		c.Connections = len(conns)
	}
	return c
}
