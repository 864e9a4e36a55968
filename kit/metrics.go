package kit

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are a service's figures for Prometheus, a collector of all that are made with
// it. Their names begin with "sluice_" and the name of the service.
type Metrics struct {
	*prometheus.Registry
	prefix string
}

// NewMetrics returns those of the service of that name, none so far.
func NewMetrics(name string) *Metrics {
	return &Metrics{prometheus.NewRegistry(), "sluice_" + name + "_"}
}

// Counter makes one without labels.
func (m *Metrics) Counter(name, help string) prometheus.Counter {
	return m.Counters(name, help).WithLabelValues()
}

// Counters makes one for each combination of labels.
func (m *Metrics) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, labels)
	m.MustRegister(v)
	return v
}

// Durations makes histograms of seconds, from a quarter of a millisecond to eight seconds,
// one for each combination of labels.
func (m *Metrics) Durations(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16)}, labels)
	m.MustRegister(v)
	return v
}

// Gauges has figures read when they are asked for: read calls is for each, with the values
// of its labels. It may be called concurrently.
func (m *Metrics) Gauges(name, help string, labels []string, read func(is func(v float64, labels ...string))) {
	m.sample(prometheus.GaugeValue, name, help, labels, read)
}

// Totals is Gauges of what only grows.
func (m *Metrics) Totals(name, help string, labels []string, read func(is func(v float64, labels ...string))) {
	m.sample(prometheus.CounterValue, name, help, labels, read)
}

func (m *Metrics) sample(kind prometheus.ValueType, name, help string, labels []string, read func(func(float64, ...string))) {
	m.MustRegister(&sample{kind, prometheus.NewDesc(m.prefix+name, help, labels, nil), read})
}

// sample is a metric that is read when it is asked for.
type sample struct {
	kind prometheus.ValueType
	desc *prometheus.Desc
	read func(func(float64, ...string))
}

// Describe implements prometheus.Collector.
func (s *sample) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements prometheus.Collector.
func (s *sample) Collect(out chan<- prometheus.Metric) {
	s.read(func(v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
	})
}
