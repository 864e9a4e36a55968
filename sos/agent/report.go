package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// keepRecords is how many ended sessions an agent remembers, for a controller
// that was away.
const keepRecords = 1024

// records are the sessions that have ended lately.
type records struct {
	mu   sync.Mutex
	list []agentapi.SessionRecord
	seq  uint64
	wake chan struct{} // closed at the next record
}

func (r *records) add(x agentapi.SessionRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	x.Seq = r.seq
	if len(r.list) >= keepRecords {
		r.list = slices.Delete(r.list, 0, keepRecords/4)
	}
	r.list = append(r.list, x)
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// since returns the records after seq, and the last number.
func (r *records) since(seq uint64) ([]agentapi.SessionRecord, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.list)
	for i > 0 && r.list[i-1].Seq > seq {
		i--
	}
	return slices.Clone(r.list[i:]), r.seq
}

// changed returns a channel that closes at the next record.
func (r *records) changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

// describe is the session as listings show it.
func (s *session) describe() agentapi.Session {
	counters := s.counters()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Session{
		ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Client: s.req.Client, Server: s.req.Server,
		Peer: s.req.Peer.Addr, Port: s.port, Reply: s.reply, Params: s.params, Started: s.started,
		SetupTime: agentapi.Duration(s.setup), Counters: counters, Context: s.req.Context,
	}
}

// live1 is the session as the event stream shows it.
func (s *session) live1() agentapi.Live {
	counters := s.counters()
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.Live{ID: s.req.ID, Role: s.req.Role, Phase: s.phase, Counters: counters}
}

// record is the session after its end.
func (s *session) record() agentapi.SessionRecord {
	r := agentapi.SessionRecord{Session: s.describe(), Ended: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Reason, r.Detail = s.reason, s.detail
	return r
}

// counters are the session's figures.
func (s *session) counters() agentapi.Counters {
	conns := *s.conns.Load()
	c := agentapi.Counters{
		ChunksSent: s.out.chunks.Load(), ChunksResent: s.out.resent.Load(),
		ConnsOpen: len(conns), RTTMicros: uint64(s.rtt.Load() / 1000),
	}
	c.BytesUp, c.BytesDown = s.out.bytes.Load(), s.in.bytes.Load()
	if s.role == roleAcceptor {
		c.BytesUp, c.BytesDown = c.BytesDown, c.BytesUp
	}
	for _, x := range conns {
		c.Retransmits += x.retransmits()
	}
	s.in.mu.Lock()
	c.BufferedBytes, c.WindowBytes = uint64(max(0, s.in.held)), uint64(s.in.window.size)
	c.ReorderChunks = s.in.order.Len()
	s.in.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ConnsLost, c.ConnsWarm, c.Why = s.lost, s.warm, s.why
	c.Congestion, c.Switches, c.WhyCongestion = s.control, s.switches, s.whyControl
	c.Retransmits += s.retrans
	c.Connections = s.p
	if s.role == roleAcceptor {
		c.Connections = len(conns)
	}
	return c
}
