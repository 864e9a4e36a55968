package agent

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/sos/wire"
)

// maxBody bounds a request's body.
const maxBody = 64 << 10

// serveControl serves the control API until the agent closes.
func (a *Agent) serveControl() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions", a.handlePrepare)
	mux.HandleFunc("GET /v1/sessions", a.handleList)
	mux.HandleFunc("GET /v1/sessions/{id}", a.withSession(a.handleGet))
	mux.HandleFunc("POST /v1/sessions/{id}/commit", a.withSession(a.handleCommit))
	mux.HandleFunc("DELETE /v1/sessions/{id}", a.withSession(a.handleAbort))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, a.Status()) })
	mux.HandleFunc("POST /v1/drain", a.handleDrain)
	mux.HandleFunc("GET /v1/events", a.handleEvents)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &agentapi.Problem{Title: "no such resource", Code: agentapi.CodeNotFound, Detail: r.URL.Path})
	})
	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(a.strange.Writer(a.log, slog.LevelWarn, "control server"), "", 0),
	}
	a.mu.Lock()
	a.server = srv
	closed := a.closed
	a.mu.Unlock()
	if closed {
		_ = a.control.Close()
		return
	}
	patient := listen.New(a.control, func(err error) {
		a.strange.Warn(a.log, "cannot accept control connections for now", "error", err)
	})
	var l net.Listener = patient
	if a.controlTLS != nil {
		if len(a.controlTLS.NextProtos) == 0 { // of this one: those of connections are taken from it
			a.controlTLS.NextProtos = []string{"h2", "http/1.1"}
		}
		l = tlsconn.NewListener(patient, a.controlTLS)
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("control server", "error", err)
	}
}

// stopControl ends the control server; the event streams end with it.
func (a *Agent) stopControl() {
	a.mu.Lock()
	srv := a.server
	a.mu.Unlock()
	if srv != nil {
		_ = srv.Close()
	} else if a.control != nil {
		_ = a.control.Close()
	}
}

func (a *Agent) handlePrepare(w http.ResponseWriter, r *http.Request) {
	var req agentapi.PrepareRequest
	if err := readBody(w, r, &req); err != nil {
		refuse(w, err)
		return
	}
	out, err := a.prepare(req)
	if err != nil {
		a.metrics.refused.WithLabelValues(string(asProblem(err).Code)).Inc()
		refuse(w, err)
		return
	}
	reply(w, out)
}

func (a *Agent) handleCommit(w http.ResponseWriter, r *http.Request, s *session) {
	if err := s.commit(r.Context()); err != nil {
		a.metrics.refused.WithLabelValues(string(asProblem(err).Code)).Inc()
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *Agent) handleAbort(w http.ResponseWriter, _ *http.Request, s *session) {
	s.finish(agentapi.ReasonAborted, "", wire.CauseAbort)
	w.WriteHeader(http.StatusNoContent)
}

func (a *Agent) handleList(w http.ResponseWriter, _ *http.Request) {
	sessions := a.list()
	out := make([]agentapi.Session, 0, len(sessions))
	for _, s := range sessions {
		out = append(out, s.describe())
	}
	reply(w, out)
}

func (a *Agent) handleGet(w http.ResponseWriter, _ *http.Request, s *session) {
	reply(w, s.describe())
}

func (a *Agent) handleDrain(w http.ResponseWriter, r *http.Request) {
	var req agentapi.DrainRequest
	if err := readBody(w, r, &req); err != nil {
		refuse(w, err)
		return
	}
	a.draining.Store(req.On)
	reply(w, a.Status())
}

// gather is how long the records of ended sessions wait for more, so that many
// short sessions need few events.
const gather = 20 * time.Millisecond

// handleEvents streams an Event with the live sessions each second, and one with
// the sessions that have ended soon after they have.
func (a *Agent) handleEvents(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := true
	for seen := uint64(0); ; {
		ended, last := a.records.since(seen)
		seen = last
		e := agentapi.Event{Instance: a.instance, Status: a.load.now(), Ended: ended}
		if live {
			for _, s := range a.list() {
				e.Live = append(e.Live, s.live1())
			}
		}
		if rc.SetWriteDeadline(time.Now().Add(5*time.Second)) != nil || enc.Encode(e) != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-a.ctx.Done():
			return
		case <-tick.C:
			live = true
		case <-a.records.changed():
			live = false
			select {
			case <-r.Context().Done():
				return
			case <-time.After(gather):
			}
		}
	}
}

// withSession finds the session of the path.
func (a *Agent) withSession(f func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := agentapi.ParseSessionID(r.PathValue("id"))
		if err != nil {
			refuse(w, badRequest("id", "%v", err))
			return
		}
		s := a.session(id)
		if s == nil {
			refuse(w, &agentapi.Problem{Title: "no such session", Code: agentapi.CodeNotFound, Detail: id.String()})
			return
		}
		f(w, r, s)
	}
}

// readBody decodes a JSON body strictly.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return badRequest("body", "%v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return badRequest("body", "more than one JSON value")
	}
	return nil
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone, which it will notice
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, err error) {
	p := *asProblem(err)
	p.Status = statusOf(p.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func statusOf(c agentapi.Code) int {
	switch c {
	case agentapi.CodeBadRequest:
		return http.StatusBadRequest
	case agentapi.CodeNotFound:
		return http.StatusNotFound
	case agentapi.CodeDuplicate:
		return http.StatusConflict
	case agentapi.CodeFull, agentapi.CodeDraining:
		return http.StatusServiceUnavailable
	case agentapi.CodeRefused, agentapi.CodeUnreachable, agentapi.CodeNoRoute, agentapi.CodeNoPeer:
		return http.StatusBadGateway
	case agentapi.CodeTimeout:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}
