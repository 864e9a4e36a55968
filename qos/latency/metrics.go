package latency

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are collected from the classes when they are asked for.
type metrics struct {
	s *Service

	classes, bytes, packets, drops *prometheus.Desc
}

func newMetrics(s *Service) *metrics {
	queue := []string{"class", "switch", "port"}
	return &metrics{
		s:       s,
		classes: prometheus.NewDesc("sluice_qos_classes", "Classes of traffic by state.", []string{"state"}, nil),
		bytes:   prometheus.NewDesc("sluice_qos_class_bytes_total", "Bytes that a class's queue has sent.", queue, nil),
		packets: prometheus.NewDesc("sluice_qos_class_packets_total", "Packets that a class's queue has sent.", queue, nil),
		drops:   prometheus.NewDesc("sluice_qos_class_drops_total", "Packets that a class's queue has dropped.", queue, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.classes, m.bytes, m.packets, m.drops} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	states := map[string]int{StateProvisioning: 0, StateActive: 0, StateDegraded: 0, StateIneffective: 0}
	for name, e := range m.s.classes {
		states[e.state]++
		for at, x := range e.samples {
			labels := []string{name, at.Switch.String(), strconv.Itoa(int(at.Port))}
			for d, v := range map[*prometheus.Desc]uint64{m.bytes: x.total.Bytes, m.packets: x.total.Packets, m.drops: x.total.Drops} {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
			}
		}
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(m.classes, prometheus.GaugeValue, float64(n), state)
	}
}
