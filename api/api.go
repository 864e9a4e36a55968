package api

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
)

var (
	eventType    = reflect.TypeFor[event.Event]()
	problemModel = reflect.TypeFor[huma.ErrorModel]()
)

// Lists in answers are never null: who makes one makes it empty.
func init() { huma.DefaultArrayNullable = false }

// Prefix is the path below which all operations stand.
const Prefix = "/api/v1"

// Options is what an API is made from.
type Options struct {
	// Version is that of the program, shown in the OpenAPI document.
	Version string
	// Auth decides who may do what.
	Auth Auth
	// Bus is the source of /api/v1/events.
	Bus *event.Bus
	// Log receives one line per refused or failed request.
	Log *slog.Logger
	// MaxBody bounds the body of a request in bytes; zero means 1 MiB.
	MaxBody int64
}

// Check says whether a part of the controller is ready, for /readyz.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// API collects the operations of the core and the services and serves them.
type API struct {
	opts     Options
	huma     huma.API
	mux      *http.ServeMux
	registry *prometheus.Registry
	checks   []Check
	remarks  []func() string
	stopping chan struct{} // closed when Run begins to stop
	streams  streams       // of events
	tokens   atomic.Pointer[tokenSet]

	permitted map[permission]bool
	open      map[string]bool // patterns of what everybody may have
	schemes   map[string]func(*http.Request) (string, error)
	awaited   map[string]<-chan struct{} // paths of services, and when they have loaded
	metrics   requestMetrics

	refusals, unready, errors lograte.Limit // of lines that anybody can cause
}

// New returns an API without any service's operations.
func New(opts Options) *API {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	a := &API{opts: opts, mux: http.NewServeMux(), registry: prometheus.NewRegistry(), stopping: make(chan struct{}), permitted: map[permission]bool{}, open: map[string]bool{}, awaited: map[string]<-chan struct{}{}, schemes: map[string]func(*http.Request) (string, error){}}
	a.tokens.Store(newTokenSet(opts.Auth.Tokens))
	a.huma = humago.New(a.mux, a.humaConfig())
	a.huma.UseMiddleware(a.checkQuery)
	a.registerSystem()
	return a
}

// Huma is where services register their operations; see the package's
// documentation for an example.
func (a *API) Huma() huma.API { return a.huma }

// Metrics is where services register their Prometheus collectors. Names begin
// with "sluice_<service>_".
func (a *API) Metrics() *prometheus.Registry { return a.registry }

// AddRemark adds lines to the answer of /readyz, which is public: what remark returns, if
// not empty, while the controller is ready. Call it before Run.
func (a *API) AddRemark(remark func() string) { a.remarks = append(a.remarks, remark) }

// AddCheck adds a condition of /readyz. Call it before Run.
func (a *API) AddCheck(c Check) { a.checks = append(a.checks, c) }

// Stopping is closed when Run begins to stop: a stream ends then, or it holds up
// the end.
func (a *API) Stopping() <-chan struct{} { return a.stopping }

// Handle adds a handler beside huma, behind the same authentication.
func (a *API) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// HandlePublic adds a handler that everybody may ask without authentication: for
// what is the same in every installation, or a single word.
func (a *API) HandlePublic(pattern string, h http.Handler) {
	a.open[pattern] = true
	a.mux.Handle(pattern, h)
}
