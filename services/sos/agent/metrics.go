package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sluice-net/sluice/pki"
)

// metrics holds the agent's Prometheus metrics, in a registry of their own.
type metrics struct {
	registry *prometheus.Registry
	refused  *prometheus.CounterVec
	ends     *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	lost     prometheus.Counter
	resent   prometheus.Counter
	retrans  prometheus.Counter
	rejected prometheus.Counter
	setup    prometheus.Histogram
	agent    *Agent
}

func newMetrics(a *Agent) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "sluice", Subsystem: "sos_agent", Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "sluice", Subsystem: "sos_agent", Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string, f func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "sluice", Subsystem: "sos_agent", Name: name, Help: help}, f)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(), agent: a,
		refused:  vec("sessions_refused_total", "Sessions refused at prepare or commit.", "code"),
		ends:     vec("sessions_ended_total", "Sessions that have ended.", "reason"),
		bytes:    vec("session_bytes_total", "Payload of sessions that have ended.", "direction"),
		lost:     counter("connections_lost_total", "Connections between agents that died in mid-session."),
		resent:   counter("chunks_resent_total", "Chunks sent again on another connection."),
		retrans:  counter("segments_retransmitted_total", "TCP segments sent again in sessions that have ended."),
		rejected: counter("connections_rejected_total", "Connections that did not belong to a session."),
		setup: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sluice", Subsystem: "sos_agent", Name: "session_setup_seconds",
			Help: "Time from prepare until a session runs.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	m.registry.MustRegister(m.refused, m.ends, m.bytes, m.lost, m.resent, m.retrans, m.rejected, m.setup,
		gauge("sessions", "Sessions now.", func() float64 { return float64(len(a.list())) }),
		gauge("warm_connections", "Idle connections to peers.", func() float64 { return float64(a.warm.size()) }),
		gauge("pipes", "Pipes in use.", func() float64 { return float64(a.pipes.inUse.Load()) }),
		gauge("buffered_bytes", "Payload held in pipes.", func() float64 { return float64(a.server.Load().BufferedBytes) }),
		newPathMetrics(a.pacers), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.cfg.Cert != "" {
		m.registry.MustRegister(pki.NewExpiry(func() map[string]string { return map[string]string{"control.tls": a.cfg.Cert} }))
	}
	return m
}

// ended adds the figures of a session that has ended.
func (m *metrics) ended(s *session) {
	m.agent.total.add(s)
	r := s.record()
	m.ends.WithLabelValues(string(r.Reason)).Inc()
	m.bytes.WithLabelValues("up").Add(float64(r.Counters.BytesUp))
	m.bytes.WithLabelValues("down").Add(float64(r.Counters.BytesDown))
	m.resent.Add(float64(r.Counters.ChunksResent))
	m.retrans.Add(float64(r.Counters.Retransmits))
	if r.SetupTime > 0 {
		m.setup.Observe(float64(r.SetupTime) / 1e9)
	}
}
