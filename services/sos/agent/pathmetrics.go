package agent

import (
	"maps"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// pathMetrics exports what is known about each path, and how it is used.
type pathMetrics struct {
	pacers *pacers

	rate, pace, queue, sessions *prometheus.Desc
}

var _ prometheus.Collector = (*pathMetrics)(nil)

func newPathMetrics(x *pacers) *pathMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("sluice", "sos_agent", name), help, []string{"peer", "port"}, nil)
	}
	return &pathMetrics{
		pacers:   x,
		rate:     desc("path_rate_bytes_per_second", "What the path to a peer's data port, or from an own one, is known to carry."),
		pace:     desc("path_pace_bytes_per_second", "What all sessions together may send on the path now."),
		queue:    desc("path_queue_seconds", "By how much the path's round trip was longer than its least, when it was last looked at."),
		sessions: desc("path_sessions", "Sessions that send on the path."),
	}
}

// Describe implements prometheus.Collector.
func (m *pathMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.rate, m.pace, m.queue, m.sessions} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *pathMetrics) Collect(ch chan<- prometheus.Metric) {
	m.pacers.mu.Lock()
	all := maps.Clone(m.pacers.all)
	m.pacers.mu.Unlock()
	for path, p := range all {
		p.mu.Lock()
		control, queue, sessions := p.control, p.queue, p.sending
		rate, pace := 0.0, 0.0
		if control != nil {
			rate, pace = control.Rate(), control.Pace()
		}
		p.mu.Unlock()
		if control == nil {
			continue
		}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, path.Addr().String(), strconv.Itoa(int(path.Port())))
		}
		gauge(m.rate, rate)
		gauge(m.pace, pace)
		gauge(m.queue, queue.Seconds())
		gauge(m.sessions, float64(sessions))
	}
}
