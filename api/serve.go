package api

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/internal/listen"
)

// Timeouts of a request, and the limit of its header. The event stream replaces writeTimeout by a
// deadline for each message.
const (
	headerTimeout   = 10 * time.Second
	readTimeout     = 30 * time.Second
	writeTimeout    = 60 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	maxHeaderBytes  = 64 << 10
)

// Handler returns the whole API as a handler, with its authentication.
func (a *API) Handler() http.Handler {
	return a.countRequests(a.recoverPanics(a.limitBody(a.authenticate(a.refuseWhileLoading(a.dispatch())))))
}

// Run serves the API on the listener until ctx ends, and closes the listener.
func (a *API) Run(ctx context.Context, l net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(a.errors.Writer(a.opts.Log, slog.LevelDebug, "connection"), "", 0),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       withConn,
	}
	// Streams end when the shutdown begins; other requests have until the timeout.
	stopStreams := context.AfterFunc(ctx, func() { close(a.stopping) })
	defer stopStreams()
	done := make(chan error, 1)
	patient := listen.New(l, func(err error) {
		a.errors.Warn(a.opts.Log, "cannot accept connections for now", "address", l.Addr(), "error", err)
	})
	go func() { done <- server.Serve(patient) }()
	select {
	case err := <-done:
		return fmt.Errorf("api: serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancelGrace()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-done
	return err
}

// limitBody limits the bodies of requests, also to handlers outside huma. The limit is one byte above
// MaxBody, so that huma notices larger bodies itself and answers with a problem document.
func (a *API) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, a.opts.MaxBody+1)
		next.ServeHTTP(w, r)
	})
}

// recoverPanics turns a panic in one operation into an answer, so that other requests are not
// affected.
func (a *API) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v)
			}
			a.opts.Log.Error("a request made the API panic", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			WriteProblem(w, &huma.ErrorModel{Status: http.StatusInternalServerError, Detail: "an error in the controller, which its log describes"})
		}()
		next.ServeHTTP(w, r)
	})
}
