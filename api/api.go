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

// Lists in answers are never null: operations create empty lists instead.
func init() { huma.DefaultArrayNullable = false }

// Prefix is the path prefix of all operations.
const Prefix = "/api/v1"

// Options configure an API.
type Options struct {
	// Version is the program's version in the OpenAPI document.
	Version string
	// Auth decides which requests are accepted.
	Auth Auth
	// Bus is the source of /api/v1/events.
	Bus *event.Bus
	// Log receives one line per refused or failed request.
	Log *slog.Logger
	// MaxBody bounds the body of a request in bytes; zero means 1 MiB.
	MaxBody int64
}

// Check reports whether a part of the controller is ready, for /readyz.
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
	streams  openStreams   // streams of events
	tokens   atomic.Pointer[tokenSet]

	permissions    map[permission]bool
	publicPatterns map[string]bool // patterns of public handlers
	schemes        map[string]func(*http.Request) (string, error)
	loading        map[string]<-chan struct{} // path prefixes of services, with channels that are closed when they have loaded
	metrics        requestMetrics

	refusals, unready, errors lograte.Limit // limit lines that anybody can cause
}

// New returns an API without any service's operations.
func New(opts Options) *API {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	a := &API{opts: opts, mux: http.NewServeMux(), registry: prometheus.NewRegistry(), stopping: make(chan struct{}), permissions: map[permission]bool{}, publicPatterns: map[string]bool{}, loading: map[string]<-chan struct{}{}, schemes: map[string]func(*http.Request) (string, error){}}
	a.tokens.Store(newTokenSet(opts.Auth.Tokens))
	a.huma = humago.New(a.mux, a.humaConfig())
	a.huma.UseMiddleware(a.checkQuery)
	a.registerSystem()
	return a
}

// Huma returns the huma API with which services register their operations; see the package's
// documentation for an example.
func (a *API) Huma() huma.API { return a.huma }

// Metrics returns the registry for services' Prometheus collectors. Names begin with
// "sluice_<service>_".
func (a *API) Metrics() *prometheus.Registry { return a.registry }

// AddRemark adds lines to the answer of /readyz, which is public. While the controller is ready, the
// answer contains the text that remark returns, unless the text is empty. AddRemark must be called
// before Run.
func (a *API) AddRemark(remark func() string) { a.remarks = append(a.remarks, remark) }

// AddCheck adds a condition of /readyz. AddCheck must be called before Run.
func (a *API) AddCheck(c Check) { a.checks = append(a.checks, c) }

// Stopping returns a channel that is closed when Run begins to stop. Streams must end then,
// because they would delay the end.
func (a *API) Stopping() <-chan struct{} { return a.stopping }

// Handle adds a handler outside huma, with the same authentication.
func (a *API) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// HandlePublic adds a handler without authentication. It is for content that is the same in
// every installation, or a single word.
func (a *API) HandlePublic(pattern string, h http.Handler) {
	a.publicPatterns[pattern] = true
	a.mux.Handle(pattern, h)
}
