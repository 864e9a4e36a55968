package domain

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of the protocol for Prometheus.
type metrics struct {
	service  *Service
	in       *prometheus.CounterVec
	refusals *prometheus.CounterVec
	out      *prometheus.CounterVec
	took     *prometheus.HistogramVec
	overflow prometheus.Counter

	visitors, abroad, owed *prometheus.Desc
}

func newMetrics(s *Service) *metrics {
	byNeighbour := []string{"neighbour"}
	return &metrics{
		service: s,
		in: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_neighbour_received_total", Help: "Messages of neighbours that were accepted.",
		}, []string{"neighbour", "message"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_neighbour_refused_total", Help: "Messages and answers of neighbours that were refused, by reason.",
		}, []string{"neighbour", "message", "code"}),
		out: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_neighbour_sent_total", Help: "Messages to neighbours, by result: ok, failed, or the code of the refusal.",
		}, []string{"neighbour", "message", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_handover_neighbour_answer_seconds", Help: "How long neighbours took to answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"neighbour", "message"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_handover_neighbour_unasked_total", Help: "Unknown devices about which neighbours were not asked since too many were asked about already.",
		}),
		visitors: prometheus.NewDesc("sluice_handover_neighbour_visitors", "Devices that came from the neighbour.", byNeighbour, nil),
		abroad:   prometheus.NewDesc("sluice_handover_neighbour_abroad", "Devices whose packets are sent to the neighbour.", byNeighbour, nil),
		owed:     prometheus.NewDesc("sluice_handover_neighbour_owed", "Messages that still have to reach the neighbour.", byNeighbour, nil),
	}
}

func (m *metrics) received(neighbour string, kind Kind) {
	m.in.WithLabelValues(neighbour, string(kind)).Inc()
}

func (m *metrics) refused(neighbour string, kind Kind, code Code) {
	if code == "" {
		code = CodeFailed
	}
	m.refusals.WithLabelValues(neighbour, string(kind), string(code)).Inc()
}

func (m *metrics) sent(neighbour string, kind Kind, err error, took time.Duration) {
	result := "ok"
	if code := codeOf(err); code.known() {
		result = string(code)
	} else if err != nil {
		result = "failed"
	}
	m.out.WithLabelValues(neighbour, string(kind), result).Inc()
	m.took.WithLabelValues(neighbour, string(kind)).Observe(took.Seconds())
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.in, m.refusals, m.out, m.took, m.overflow}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
	out <- m.visitors
	out <- m.abroad
	out <- m.owed
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	for _, st := range m.service.Neighbours() {
		out <- prometheus.MustNewConstMetric(m.visitors, prometheus.GaugeValue, float64(st.Visitors), st.Name)
		out <- prometheus.MustNewConstMetric(m.abroad, prometheus.GaugeValue, float64(st.Abroad), st.Name)
		out <- prometheus.MustNewConstMetric(m.owed, prometheus.GaugeValue, float64(st.Owed), st.Name)
	}
}
