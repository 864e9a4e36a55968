package agent

import (
	"maps"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sluice-net/sluice/internal/drift"
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
	// openedEarly and failedEarly count connections that were to be opened before a session.
	openedEarly, failedEarly prometheus.Counter
	setup                    prometheus.Histogram
	agent                    *Agent
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
		lost:     counter("connections_lost_total", "Connections between agents that failed during a session."),
		resent:   counter("chunks_resent_total", "Chunks sent again on another connection."),
		retrans:  counter("segments_retransmitted_total", "TCP segments sent again in sessions that have ended."),
		rejected: counter("connections_rejected_total", "Connections that did not belong to a session."),

		openedEarly: counter("warm_opened_total", "Connections to peers that were opened before a session needed them."),
		failedEarly: counter("warm_failed_total", "Connections to peers that could not be opened before a session needed them."),
		setup: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sluice", Subsystem: "sos_agent", Name: "session_setup_seconds",
			Help: "Time from prepare until a session runs.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	m.registry.MustRegister(m.refused, m.ends, m.bytes, m.lost, m.resent, m.retrans, m.rejected, m.openedEarly, m.failedEarly, m.setup,
		gauge("sessions", "Sessions now.", func() float64 { return float64(len(a.list())) }),
		gauge("warm_connections", "Idle connections to peers.", func() float64 { return float64(a.warm.size()) }),
		gauge("pipes", "Pipes in use.", func() float64 { return float64(a.pipes.inUse.Load()) }),
		gauge("buffered_bytes", "Payload held in pipes.", func() float64 { return float64(a.server.Load().BufferedBytes) }),
		newPathMetrics(a.pacers), drift.NewCollector("sos_agent", a.drift.List), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.cfg.Cert != "" {
		m.registry.MustRegister(pki.NewExpiry(func() map[string]string { return map[string]string{"control.tls": a.cfg.Cert} }))
	}
	return m
}

// ended adds the figures of an ended session to the metrics.
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

// pathMetrics exports the rate, the pace, the queue and the sessions of each path.
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
		rate:     desc("path_rate_bytes_per_second", "Known rate of the path to a peer's data port, or from an own one."),
		pace:     desc("path_pace_bytes_per_second", "Present limit of the rate of all sessions together on the path."),
		queue:    desc("path_queue_seconds", "Excess of the path's latest round-trip time over its smallest one."),
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

// totals counts the bytes of all sessions since the agent's start.
type totals struct {
	a *Agent

	mu      sync.Mutex
	goneIn  uint64 // bytes from end hosts, of sessions that have ended
	goneOut uint64
}

// sum returns the bytes from and to end hosts, and the bytes held in pipes.
func (t *totals) sum() (in, out, held uint64) {
	t.mu.Lock()
	in, out = t.goneIn, t.goneOut
	t.mu.Unlock()
	for _, s := range t.a.list() {
		in += s.out.bytes.Load()
		out += s.in.bytes.Load()
		s.in.mu.Lock()
		held += uint64(max(0, s.in.held))
		s.in.mu.Unlock()
	}
	return in, out, held
}

// add adds the bytes of an ended session.
func (t *totals) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.goneIn += s.out.bytes.Load()
	t.goneOut += s.in.bytes.Load()
}
