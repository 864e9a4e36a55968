package cinema

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
)

// metrics holds the service's Prometheus metrics.
type metrics struct {
	own, ingress, egress *kit.Metrics

	changes       *prometheus.HistogramVec
	zap           prometheus.Observer
	failed, wrong prometheus.Counter
	trees         prometheus.Counter
	bursts        *prometheus.CounterVec
}

func newMetrics(s *Service) *metrics {
	m := &metrics{own: kit.NewMetrics(Name), ingress: kit.NewMetrics(Name + "_ingress"), egress: kit.NewMetrics(Name + "_egress")}
	s.sources.registry.Metrics(m.ingress)
	s.egress.Metrics(m.egress)
	m.own.Gauges("channels", "Channels.", nil, func(emit func(float64, ...string)) { emit(float64(len(s.Channels.Items()))) })
	m.own.Gauges("viewers", "Viewers, by egress gateway.", []string{"gateway"}, func(emit func(float64, ...string)) {
		for _, a := range s.egress.List() {
			emit(float64(s.viewers.countAt(a.Name)), a.Name)
		}
	})
	m.changes = m.own.Durations("change_seconds", "Time from a gateway's request for a viewer until the switches have confirmed it, by kind: join, change, leave.", "kind")
	m.zap = m.own.Durations("zap_seconds", "Duration of viewers' changes of channel, as their gateways report it.").WithLabelValues()
	m.failed = m.own.Counter("changes_failed_total", "Changes of viewers that the network has refused or not confirmed in time.")
	m.wrong = m.own.Counter("wrong_passwords_total", "Wrong passwords of viewers.")
	m.trees = m.own.Counter("tree_changes_total", "Changes of channels' trees.")
	m.bursts = m.own.Counters("bursts_total", "Requested bursts, by result: sent, failed, left-out.", "result")
	return m
}

func (m *metrics) register(a *api.API) { a.Metrics().MustRegister(m.own, m.ingress, m.egress) }

// change records the duration of a viewer's change.
func (m *metrics) change(x viewerChange, took time.Duration) {
	kind := "change"
	switch {
	case len(x.before) == 0:
		kind = "join"
	case len(x.after) == 0:
		kind = "leave"
	}
	m.changes.WithLabelValues(kind).Observe(took.Seconds())
}
