package agent

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// newServer returns the control server with the operations on sessions.
func (a *Agent) newServer() *control.Server[agentapi.SessionRecord, agentapi.Live] {
	s := control.NewServer[agentapi.SessionRecord](control.Options[agentapi.Live]{
		Log: a.log, MaxSessions: a.cfg.MaxSessions, Status: a.status, Sessions: func() int { return len(a.list()) },
		Live: a.live, Totals: a.total.sum, Drift: a.drift.List, Metrics: a.metrics.registry,
	})
	control.Handle(s, "POST /v1/sessions", func(_ *http.Request, in agentapi.PrepareRequest) (agentapi.PrepareReply, error) {
		out, err := a.prepare(in)
		return out, a.refusal(err)
	})
	control.Handle(s, "GET /v1/sessions", func(*http.Request, control.Nothing) ([]agentapi.Session, error) {
		sessions := a.list()
		out := make([]agentapi.Session, len(sessions))
		for i, s := range sessions {
			out[i] = s.describe()
		}
		return out, nil
	})
	control.Handle(s, "GET /v1/paths", func(*http.Request, control.Nothing) ([]agentapi.PathStatus, error) {
		return a.pacers.status(time.Now()), nil
	})
	control.Handle(s, "PUT /v1/paths/limits", func(_ *http.Request, in agentapi.Limits) ([]agentapi.PathStatus, error) {
		if err := checkLimits(in); err != nil {
			return nil, err
		}
		return a.pacers.setLimits(in, time.Now()), nil
	})
	control.Handle(s, "PUT /v1/peers/expected", func(_ *http.Request, in agentapi.WarmPeers) (out control.Nothing, err error) {
		return out, a.expectPeers(in)
	})
	control.Handle(s, "PUT /v1/peers/warm", a.warmPeers)
	control.Handle(s, "GET /v1/sessions/{id}", func(r *http.Request, _ control.Nothing) (out agentapi.Session, err error) {
		return out, a.withSession(r, func(s *session) error { out = s.describe(); return nil })
	})
	control.Handle(s, "POST /v1/sessions/{id}/commit", func(r *http.Request, _ control.Nothing) (out control.Nothing, err error) {
		return out, a.withSession(r, func(s *session) error { return a.refusal(s.commit(r.Context())) })
	})
	control.Handle(s, "PUT /v1/sessions/{id}/marks", func(r *http.Request, in agentapi.Marks) (out control.Nothing, err error) {
		if err := checkMarks(in); err != nil {
			return out, err
		}
		return out, a.withSession(r, func(s *session) error { return s.marks.set(in) })
	})
	control.Handle(s, "DELETE /v1/sessions/{id}", func(r *http.Request, _ control.Nothing) (out control.Nothing, err error) {
		return out, a.withSession(r, func(s *session) error { s.finish(agentapi.ReasonAborted, "", wire.CauseAbort); return nil })
	})
	return s
}

// refusal counts an error of prepare or commit in the metrics, and returns the error.
func (a *Agent) refusal(err error) error {
	if err != nil {
		a.metrics.refused.WithLabelValues(string(control.AsProblem(err).Code)).Inc()
	}
	return err
}

// withSession calls f with the session that the request's path names.
func (a *Agent) withSession(r *http.Request, f func(*session) error) error {
	id, err := agentapi.ParseSessionID(r.PathValue("id"))
	if err != nil {
		return control.BadRequest("id", "%v", err)
	}
	s := a.session(id)
	if s == nil {
		return &control.Problem{Title: "no such session", Code: control.CodeNotFound, Detail: id.String()}
	}
	return f(s)
}

// status returns the agent's status, except for its load.
func (a *Agent) status() control.Status {
	return control.Status{
		Version: a.cfg.Version, Addrs: a.cfg.addrs(), DataPorts: a.dataPorts, SessionPorts: a.cfg.SessionPorts,
		CongestionControls: congestionControls(), Transports: a.transports.names(), Warnings: a.warnings, Peers: a.peersHeard(),
	}
}

// live returns the live sessions as the event stream shows them.
func (a *Agent) live() (out []agentapi.Live) {
	for _, s := range a.list() {
		out = append(out, s.liveInfo())
	}
	return out
}

// status returns the figures of all paths, sorted by peer and port.
func (x *pacers) status(now time.Time) []agentapi.PathStatus {
	x.mu.Lock()
	all := maps.Clone(x.all)
	x.mu.Unlock()
	out := make([]agentapi.PathStatus, 0, len(all))
	for path, p := range all {
		if s, ok := p.status(path, now); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b agentapi.PathStatus) int {
		return cmp.Or(a.Peer.Compare(b.Peer), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// status returns the figures of the path, and reports whether the path was ever used.
func (p *pacer) status(path netip.AddrPort, now time.Time) (s agentapi.PathStatus, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return s, false
	}
	bits := func(bytes float64) uint64 { return uint64(8 * bytes) }
	rate, doubtful := p.known(now)
	s = agentapi.PathStatus{
		Peer: path.Addr(), Port: path.Port(), Rate: bits(rate), Source: p.source(), Doubtful: doubtful, Seen: p.shownAt,
		RTT: agentapi.Duration(p.rtt), Loss: p.loss.share, Phase: string(p.control.Phase()),
	}
	if p.running {
		s.Queue, s.Pace, s.Sessions = agentapi.Duration(p.queue), bits(p.control.Pace()), p.sending
		s.Delivered = bits(p.carried())
	}
	s.Queued = p.queued
	if now.Before(p.limit.until) && !math.IsInf(p.limit.pace, 1) {
		s.Limit = bits(p.limit.pace)
	}
	return s, true
}
