package bandwidth

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's figures for Prometheus.
type metrics struct {
	service  *Service
	outcomes *prometheus.CounterVec
	setup    prometheus.Histogram
	moves    prometheus.Histogram
	flows    *prometheus.Desc
	promised *prometheus.Desc
}

func newMetrics(s *Service) *metrics {
	return &metrics{
		service: s,
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_qos_placements_total", Help: "First packets of critical flows, by what became of the flow.",
		}, []string{"outcome"}),
		setup: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_qos_placement_seconds", Help: "Time from a flow's first packet until its release.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		moves: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_qos_move_seconds", Help: "Time that a flow's move to another path took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		flows:    prometheus.NewDesc("sluice_qos_flows", "Critical flows, by state.", []string{"state"}, nil),
		promised: prometheus.NewDesc("sluice_qos_promised_bytes_per_second", "Capacity promised on a link, by the port it leaves from.", []string{"port"}, nil),
	}
}

func (m *metrics) placed(state State, took time.Duration) {
	m.outcomes.WithLabelValues(string(state)).Inc()
	m.setup.Observe(took.Seconds())
}

func (m *metrics) moved(took time.Duration) { m.moves.Observe(took.Seconds()) }

// Collector is what Prometheus asks.
func (s *Service) Collector() prometheus.Collector { return s.metrics }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.outcomes.Describe(out)
	m.setup.Describe(out)
	m.moves.Describe(out)
	out <- m.flows
	out <- m.promised
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.outcomes.Collect(out)
	m.setup.Collect(out)
	m.moves.Collect(out)
	states := map[State]int{StatePlacing: 0, StateAccepted: 0, StateBestEffort: 0}
	m.service.mu.Lock()
	for _, f := range m.service.flows {
		states[f.state]++
	}
	m.service.mu.Unlock()
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(m.flows, prometheus.GaugeValue, float64(n), string(state))
	}
	for _, line := range m.service.book.Lines() {
		out <- prometheus.MustNewConstMetric(m.promised, prometheus.GaugeValue, float64(line.Promised)/8, line.Link.String())
	}
}
