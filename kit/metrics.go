package kit

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is the collector of a service's Prometheus metrics. Their names begin with "sluice_" and
// the name of the service.
type Metrics struct {
	*prometheus.Registry
	prefix string
}

// NewMetrics returns a collector without metrics for the service of a name.
func NewMetrics(name string) *Metrics {
	return &Metrics{prometheus.NewRegistry(), "sluice_" + name + "_"}
}

// Counter adds a counter without labels.
func (m *Metrics) Counter(name, help string) prometheus.Counter {
	return m.Counters(name, help).WithLabelValues()
}

// Counters adds a counter for each combination of labels.
func (m *Metrics) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, labels)
	m.MustRegister(v)
	return v
}

// Durations adds a histogram for each combination of labels. Its buckets range from a quarter of a
// millisecond to eight seconds.
func (m *Metrics) Durations(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16)}, labels)
	m.MustRegister(v)
	return v
}

// Gauges adds gauges that are read when they are collected: read calls emit for each gauge, with
// the values of its labels. read may be called concurrently.
func (m *Metrics) Gauges(name, help string, labels []string, read func(emit func(v float64, labels ...string))) {
	m.sample(prometheus.GaugeValue, name, help, labels, read)
}

// Totals adds counters that are read when they are collected, as Gauges does for gauges.
func (m *Metrics) Totals(name, help string, labels []string, read func(emit func(v float64, labels ...string))) {
	m.sample(prometheus.CounterValue, name, help, labels, read)
}

func (m *Metrics) sample(kind prometheus.ValueType, name, help string, labels []string, read func(func(float64, ...string))) {
	m.MustRegister(&sample{kind, prometheus.NewDesc(m.prefix+name, help, labels, nil), read})
}

// sample is a metric that is read when it is collected.
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
