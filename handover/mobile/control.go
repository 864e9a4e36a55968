package mobile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Limits of the control interface.
const (
	maxBody        = 64 << 10
	controlTimeout = 10 * time.Second
	stopTimeout    = 2 * time.Second
)

// MoveRequest asks for a move.
type MoveRequest struct {
	Interface string `json:"interface"`
	// Hold keeps the device there, whatever the policy says: for that many
	// seconds, or without end if it is negative; 0 leaves the next choice to the
	// policy.
	Hold float64 `json:"hold_seconds"`
	Why  string  `json:"why,omitempty"`
}

// problem is an answer that is not a success (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// codes are the problems that callers may want to tell apart.
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

// handler is the control interface.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		s, err := d.Status(r.Context())
		answer(w, s, err)
	})
	mux.HandleFunc("POST /v1/move", func(w http.ResponseWriter, r *http.Request) {
		var m MoveRequest
		if !read(w, r, &m) {
			return
		}
		if m.Why == "" {
			m.Why = "asked for by command"
		}
		done, err := d.MoveTo(r.Context(), m.Interface, m.Why, time.Duration(m.Hold*float64(time.Second)))
		answer(w, done, err)
	})
	mux.HandleFunc("POST /v1/auto", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, d.Auto(r.Context()))
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		send(w, http.StatusBadRequest, "application/problem+json", &problem{
			Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Code: "bad-request", Detail: err.Error(),
		})
		return false
	}
	return true
}

func answer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		send(w, http.StatusOK, "application/json", v)
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
	send(w, p.Status, "application/problem+json", p)
}

func send(w http.ResponseWriter, status int, media string, v any) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the other side has gone if it fails
}

// listen opens the control socket. One that an earlier daemon has left is
// replaced: the journal's lock says that no other daemon runs.
func listen(path string, group int) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("control socket %s: something else is there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("control socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	mode := os.FileMode(0o600)
	if group >= 0 {
		mode = 0o660
		err = os.Chown(path, -1, group)
	}
	if err = errors.Join(err, os.Chmod(path, mode)); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

// serve answers on the control socket until ctx ends.
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
			_ = s.Close() // who still waits after that has waited long enough
		}
	})()
	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("control socket: %w", err)
}
