package cinema

import (
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

func newMetrics() *metrics {
	m := &metrics{own: kit.NewMetrics(Name), ingress: kit.NewMetrics(Name + "_ingress"), egress: kit.NewMetrics(Name + "_egress")}
	m.changes = m.own.Durations("change_seconds", "Time from a gateway's request for a viewer until the switches have confirmed it, by kind: join, change, leave.", "kind")
	m.zap = m.own.Durations("zap_seconds", "Duration of viewers' changes of channel, as their gateways report it.").WithLabelValues()
	m.failed = m.own.Counter("changes_failed_total", "Changes of viewers that the network has refused or not confirmed in time.")
	m.wrong = m.own.Counter("wrong_passwords_total", "Wrong passwords of viewers.")
	m.trees = m.own.Counter("tree_changes_total", "Changes of channels' trees.")
	m.bursts = m.own.Counters("bursts_total", "Requested bursts, by result: sent, failed, left-out.", "result")
	return m
}

func (m *metrics) register(a *api.API) { a.Metrics().MustRegister(m.own, m.ingress, m.egress) }
