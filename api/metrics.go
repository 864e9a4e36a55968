package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// requestMetrics counts requests to the API.
type requestMetrics struct{ requests *prometheus.CounterVec }

func (a *API) registerMetrics() {
	a.metrics.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_api_requests_total", Help: "Requests to the API that have been answered, by method and status.",
	}, []string{"method", "code"})
	a.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), a.metrics.requests,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_api_event_streams", Help: "Event streams that are open now.",
		}, func() float64 { return float64(a.streams.len()) }))
	if a.opts.Bus != nil {
		// By this metric, a consumer of the event stream can check that it has missed no event.
		a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_event_last_id", Help: "Identifier of the latest event.",
		}, func() float64 { return float64(a.opts.Bus.Last()) }))
	}
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{Registry: a.registry}))
}

func (a *API) countRequests(next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerCounter(a.metrics.requests, next)
}
