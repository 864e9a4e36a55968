package plugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// metrics are the service's figures for Prometheus.
type metrics struct {
	service             *Service
	up                  prometheus.Counter
	failed              *prometheus.CounterVec
	refused             *prometheus.CounterVec
	finished            prometheus.Counter
	bytes               *prometheus.CounterVec
	reroutes            prometheus.Counter
	resubmitted, strays prometheus.Counter
	setup               *prometheus.HistogramVec

	live, pending, agents *prometheus.Desc
}

func newMetrics(s *Service) *metrics {
	return &metrics{
		service: s,
		up: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_sos_sessions_established_total", Help: "Sessions set up.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_sos_sessions_direct_total", Help: "Whitelisted connections that were let go directly because their set-up failed, by reason; earlier: before this start.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_sos_offers_refused_total", Help: "Whitelisted connections that were not tried, by the bound that was reached.",
		}, []string{"bound"}),
		finished: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_sos_sessions_ended_total", Help: "Sessions that were carried to their end.",
		}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_sos_carried_bytes_total", Help: "Payload of ended sessions, by direction.",
		}, []string{"direction"}),
		reroutes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_sos_reroutes_total", Help: "Ways of sessions and of pairs of agents that were changed.",
		}),
		resubmitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_sos_agent_packets_resubmitted_total", Help: "Packets of sessions' agents that a switch judged by an old decision and sent up; they were sent through its tables again.",
		}),
		strays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_sos_agent_packets_stray_total", Help: "Packets from agents' session ports that belong to no session, and reached no end host.",
		}),
		setup: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_sos_setup_seconds", Help: "Duration of a session's set-up, by step.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"step"}),
		live:    prometheus.NewDesc("sluice_sos_sessions", "Sessions, by state.", []string{"state"}, nil),
		pending: prometheus.NewDesc("sluice_sos_setups", "Sessions being set up.", nil, nil),
		agents:  prometheus.NewDesc("sluice_sos_agents", "Known agents, by state.", []string{"state"}, nil),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.up, m.failed, m.refused, m.finished, m.bytes, m.reroutes, m.resubmitted, m.strays, m.setup}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
	out <- m.live
	out <- m.pending
	out <- m.agents
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	s := m.service
	sessions := map[State]int{StateSetup: 0, StateLive: 0, StateResetting: 0, StateEnding: 0}
	agents := map[Liveness]int{AgentUnknown: 0, AgentUp: 0, AgentSilent: 0}
	s.mu.Lock()
	setups := s.setups
	for _, ss := range s.sessions {
		sessions[ss.state]++
	}
	for _, a := range s.agents {
		agents[a.liveness]++
	}
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(m.pending, setups)
	for state, n := range sessions {
		gauge(m.live, n, string(state))
	}
	for state, n := range agents {
		gauge(m.agents, n, string(state))
	}
}

func (m *metrics) established(st Steps) {
	m.up.Inc()
	for step, d := range map[string]agentapi.Duration{
		"queue": st.Queue, "select": st.Select, "prepare": st.Prepare, "rules": st.Rules, "commit": st.Commit, "client": st.Client, "total": st.Total,
	} {
		m.setup.WithLabelValues(step).Observe(time.Duration(d).Seconds())
	}
}

// resume goes on from what earlier controllers have counted.
func (m *metrics) resume(t Totals) {
	m.up.Add(float64(t.Carried))
	m.finished.Add(float64(t.Carried))
	m.failed.WithLabelValues("earlier").Add(float64(t.Direct))
	m.bytes.WithLabelValues("up").Add(float64(t.BytesUp))
	m.bytes.WithLabelValues("down").Add(float64(t.BytesDown))
}

func (m *metrics) ended(r Record) {
	m.finished.Inc()
	m.bytes.WithLabelValues("up").Add(float64(r.BytesUp))
	m.bytes.WithLabelValues("down").Add(float64(r.BytesDown))
}
