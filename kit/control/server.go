package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tlsconn"
)

// Options configures a Server.
type Options[L any] struct {
	Log *slog.Logger
	// MaxSessions is the number of sessions that the agent accepts. It is reported to the
	// controller.
	MaxSessions int
	// Status returns the parts of the status that do not change, and the state of peers. The server
	// fills in the rest. Status may be nil, like the functions that follow.
	Status func() Status
	// Sessions returns the number of sessions in progress, and Live describes them.
	Sessions func() int
	Live     func() []L
	// Totals returns the payload received from and sent to end hosts so far, and the payload held
	// now, in bytes.
	Totals  func() (in, out, held uint64)
	Metrics prometheus.Gatherer
	// Drift returns the counts of what was not as the agent has declared it on its machine.
	Drift func() []drift.Count
}

// Server is an agent's control server. Add operations with Handle, then call Serve. The other
// methods may be called at any time and concurrently.
type Server[R, L any] struct {
	Options[L]
	mux      *http.ServeMux
	http     *http.Server
	strange  lograte.Limit // limits log lines that anybody can cause
	instance string
	started  time.Time
	draining atomic.Bool
	drains   atomic.Uint64 // the number of drain requests; read it before draining
	journal  journal[R]
	meter    meter
	ctx      context.Context // ends with the server
	cancel   context.CancelFunc
}

// NewServer returns a server that does not serve yet.
func NewServer[R, L any](o Options[L]) *Server[R, L] {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Status == nil {
		o.Status = func() Status { return Status{} }
	}
	if o.Sessions == nil {
		o.Sessions = func() int { return 0 }
	}
	if o.Live == nil {
		o.Live = func() []L { return nil }
	}
	if o.Totals == nil {
		o.Totals = func() (in, out, held uint64) { return 0, 0, 0 }
	}
	if o.Drift == nil {
		o.Drift = func() []drift.Count { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	s := &Server[R, L]{
		Options: o, mux: http.NewServeMux(), instance: fmt.Sprintf("%016x", rand.Uint64()), started: time.Now(),
		meter: meter{at: time.Now(), cpu: cpuTime()},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(s.strange.Writer(o.Log, slog.LevelWarn, "control server"), "", 0),
	}
	s.register()
	return s
}

func (s *Server[R, L]) register() {
	Handle(s, "GET /v1/status", func(*http.Request, Nothing) (Status, error) { return s.Now(), nil })
	Handle(s, "POST /v1/drain", func(_ *http.Request, in DrainRequest) (Status, error) {
		s.draining.Store(in.On)
		s.drains.Add(1)
		return s.Now(), nil
	})
	s.mux.HandleFunc("GET /v1/events", s.events)
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &Problem{Title: "no such resource", Code: CodeNotFound, Detail: r.URL.Path})
	})
}

// ServeHTTP answers one request.
func (s *Server[R, L]) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Serve serves a listener until Close, and returns any other reason for its end as an error. config
// requires the controller's certificate; it is nil on the loopback interface.
func (s *Server[R, L]) Serve(l net.Listener, config *tls.Config) error {
	l = listen.New(l, func(err error) {
		s.strange.Warn(s.Log, "cannot accept control connections for now", "error", err)
	})
	if config != nil {
		if len(config.NextProtos) == 0 { // connections take their configurations from this one
			config.NextProtos = []string{"h2", "http/1.1"}
		}
		l = tlsconn.NewListener(l, config)
	}
	var measuring sync.WaitGroup
	measuring.Go(s.measure)
	err := s.http.Serve(l)
	s.cancel()
	measuring.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("control server at %v: %w", l.Addr(), err)
}

// Close closes the server and its event streams.
func (s *Server[R, L]) Close() {
	s.cancel()
	_ = s.http.Close()
}

// measure samples the load every second.
func (s *Server[R, L]) measure() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.meter.sample(s.Totals())
		}
	}
}

// Record adds a record, which is sent to the controller.
func (s *Server[R, L]) Record(r R) { s.journal.add(r) }

// Records returns the records that the server still holds, the oldest first, and a channel that is
// closed at the next record.
func (s *Server[R, L]) Records() (latest []R, changed <-chan struct{}) {
	changed = s.journal.changed()
	latest, _ = s.journal.since(0)
	return latest, changed
}

// Draining reports whether the agent must accept no new work.
func (s *Server[R, L]) Draining() bool { return s.draining.Load() }

// Load returns the load of the last second, with the present numbers of sessions.
func (s *Server[R, L]) Load() Load {
	l := s.meter.now()
	l.Sessions, l.MaxSessions, l.Draining = s.Sessions(), s.MaxSessions, s.Draining()
	return l
}

// Now returns the agent's status.
func (s *Server[R, L]) Now() Status {
	st := s.Status()
	st.DrainRequests, st.Drift = s.drains.Load(), s.Drift()
	st.Load, st.Instance, st.Started = s.Load(), s.instance, s.started
	return st
}
