package sos

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// metrics holds the service's Prometheus metrics.
type metrics struct {
	*kit.Metrics
	up, finished, reroutes prometheus.Counter
	resubmitted, strays    prometheus.Counter
	failed, refused, bytes *prometheus.CounterVec
	setup                  *prometheus.HistogramVec
}

func newMetrics(s *Service) *metrics {
	m := kit.NewMetrics(Name)
	m.Gauges("sessions", "Sessions, by state.", []string{"state"}, s.sessions.count)
	s.agents.Metrics(m)
	m.Gauges("setups", "Sessions being set up.", nil, func(is func(float64, ...string)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		is(float64(s.sessions.setups))
	})
	m.Gauges("warm_pairs", "Pairs of agents that were told to open connections before their first session, by whether they could.", []string{"state"}, s.warming.count)
	return &metrics{
		Metrics:     m,
		up:          m.Counter("sessions_established_total", "Sessions set up."),
		failed:      m.Counters("sessions_direct_total", "Whitelisted connections that agents did not carry because their set-up failed, by reason; earlier: before this start.", "reason"),
		refused:     m.Counters("offers_refused_total", "Whitelisted connections for which no set-up was tried, by the bound that was reached.", "bound"),
		finished:    m.Counter("sessions_ended_total", "Sessions that were carried to their end."),
		bytes:       m.Counters("carried_bytes_total", "Payload of ended sessions, by direction.", "direction"),
		reroutes:    m.Counter("reroutes_total", "Changes of the paths of sessions and of pairs of agents."),
		resubmitted: m.Counter("agent_packets_resubmitted_total", "Packets of sessions' agents that a switch sent to the controller by an outdated decision; they were resubmitted to its tables."),
		strays:      m.Counter("agent_packets_stray_total", "Packets from agents' session ports that belong to no session, and reached no end host."),
		setup:       m.Durations("setup_seconds", "Duration of a session's set-up, by step.", "step"),
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

// resume adds the totals of earlier controllers to the metrics.
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
