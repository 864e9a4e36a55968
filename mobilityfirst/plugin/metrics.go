package plugin

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/service"
)

// eventsEach are how many events are published in a second, ten times as many at once; what is more is
// counted alone.
const eventsEach = 20

// metrics are the service's figures for Prometheus.
type metrics struct {
	own         *service.Metrics
	by, without prometheus.Counter // requests that go on
	unknown     prometheus.Counter // requests for names that are nowhere
	dropped     *prometheus.CounterVec
	setup       prometheus.Observer
	events      *rate.Limiter
}

func newMetrics(s *Service) *metrics {
	m := &metrics{own: service.NewMetrics(Name), events: rate.NewLimiter(eventsEach, 10*eventsEach)}
	m.own.Gauges("names", "Names that are somewhere.", nil, func(is func(float64, ...string)) { is(float64(s.names.count())) })
	m.own.Gauges("paths", "Paths that have labels.", nil, func(is func(float64, ...string)) { is(float64(s.paths.count())) })
	requests := m.own.Counters("requests_total", "Path requests, by outcome: path; none: passed on without a label; unknown: nobody has said hello for the name.", "outcome")
	m.by, m.without, m.unknown = requests.WithLabelValues("path"), requests.WithLabelValues("none"), requests.WithLabelValues("unknown")
	m.dropped = m.own.Counters("dropped_total", "Frames of hosts that ended at the controller, by reason.", "reason")
	m.setup = m.own.Durations("setup_seconds", "Time from a request for a path that was not there until the switches had it.").WithLabelValues()
	return m
}

// publish puts an event on the bus.
func (s *Service) publish(kind string, attrs any) {
	if s.Bus != nil && s.metrics.events.Allow() {
		s.Bus.Publish(Name+"."+kind, attrs)
	}
}
