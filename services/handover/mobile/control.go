package mobile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/internal/jsonlimit"
)

// Limits of the control interface.
const (
	maxBody        = 64 << 10
	maxHold        = 365 * 24 * time.Hour
	controlTimeout = 10 * time.Second
	stopTimeout    = 2 * time.Second
)

// MoveRequest is a request to move.
type MoveRequest struct {
	Interface string `json:"interface"`
	// Hold is how many seconds the device stays on the interface, whatever the policy says. A
	// negative value means without end, and 0 leaves the next choice to the policy.
	Hold float64 `json:"hold_seconds"`
	Why  string  `json:"why,omitempty"`
}

// problem is the body of an error answer (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// codes holds the errors that callers may want to distinguish.
var codes = []struct {
	err    error
	code   string
	status int
}{
	{ErrUnknown, "unknown-interface", http.StatusNotFound},
	{ErrNoLink, "no-link", http.StatusConflict},
	{ErrReplaced, "replaced", http.StatusConflict},
	{errStopping, "stopping", http.StatusServiceUnavailable},
	{context.DeadlineExceeded, "timeout", http.StatusGatewayTimeout},
}

// handler returns the handler of the control interface.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		s, err := d.Status(r.Context())
		writeResult(w, s, err)
	})
	mux.HandleFunc("POST /v1/move", func(w http.ResponseWriter, r *http.Request) {
		var m MoveRequest
		if !readBody(w, r, &m) {
			return
		}
		if m.Hold > maxHold.Seconds() {
			badRequest(w, fmt.Sprintf("hold_seconds %g: at most %g; less than 0 is without end", m.Hold, maxHold.Seconds()))
			return
		}
		if m.Why == "" {
			m.Why = "asked for by command"
		}
		done, err := d.MoveTo(r.Context(), m.Interface, m.Why, time.Duration(max(m.Hold, -1)*float64(time.Second)))
		writeResult(w, done, err)
	})
	mux.HandleFunc("POST /v1/auto", func(w http.ResponseWriter, r *http.Request) {
		writeResult(w, struct{}{}, d.Auto(r.Context()))
	})
	return mux
}

// readBody decodes a request's body, and reports whether it could. Only the reading has a short
// deadline; the request itself may take longer.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(controlTimeout)) // fails only on a connection that has ended
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = jsonlimit.Default.Decode(text, into)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		badRequest(w, err.Error())
		return false
	}
	return true
}

// badRequest answers that a request is not valid.
func badRequest(w http.ResponseWriter, why string) {
	const status = http.StatusBadRequest
	writeJSON(w, status, "application/problem+json", &problem{Title: http.StatusText(status), Status: status, Code: "bad-request", Detail: why})
}

// writeResult answers with v, or with a problem if err is not nil.
func writeResult(w http.ResponseWriter, v any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, "application/json", v)
		return
	}
	p := &problem{Status: http.StatusBadGateway, Code: "failed", Detail: err.Error()}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			p.Code, p.Status = c.code, c.status
			break
		}
	}
	p.Title = http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", p)
}

// writeJSON writes an answer.
func writeJSON(w http.ResponseWriter, status int, media string, v any) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

// serve serves the control socket until ctx ends.
func (d *Daemon) serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: controlTimeout, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if s.Shutdown(ending) != nil {
			_ = s.Close() // some clients still wait after stopTimeout; they get no answer
		}
	})()
	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("control socket: %w", err)
}
