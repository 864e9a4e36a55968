package mobilityfirst

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/kit"
)

// eventsEach are how many events are published in a second, ten times as many at once; what is more is
// counted alone.
const eventsEach = 20

// metrics are the service's figures for Prometheus.
type metrics struct {
	own         *kit.Metrics
	by, without prometheus.Counter // requests that go on
	unknown     prometheus.Counter // requests for names that are nowhere
	dropped     *prometheus.CounterVec
	setup       prometheus.Observer
	events      *rate.Limiter
}

func newMetrics(s *Service) *metrics {
	m := &metrics{own: kit.NewMetrics(Name), events: rate.NewLimiter(eventsEach, 10*eventsEach)}
	m.own.Gauges("names", "Names that are somewhere.", nil, func(is func(float64, ...string)) { is(float64(s.names.count())) })
	m.own.Gauges("paths", "Paths that have labels.", nil, func(is func(float64, ...string)) { is(float64(s.paths.count())) })
	requests := m.own.Counters("requests_total", "Path requests, by outcome: path; none: passed on without a label; unknown: nobody has said hello for the name.", "outcome")
	m.by, m.without, m.unknown = requests.WithLabelValues("path"), requests.WithLabelValues("none"), requests.WithLabelValues("unknown")
	m.dropped = m.own.Counters("dropped_total", "Frames of hosts that ended at the controller, by reason.", "reason")
	m.nodes(s)
	m.setup = m.own.Durations("setup_seconds", "Time from a request for a path that was not there until the switches had it.").WithLabelValues()
	return m
}

// nodes adds what nodes tell.
func (m *metrics) nodes(s *Service) {
	m.own.Gauges("nodes", "Nodes that are declared, by kind (empty: not known yet) and standing: fit, full, silent or draining.", []string{"kind", "standing"}, func(is func(float64, ...string)) {
		count := map[[2]string]int{}
		for _, i := range s.nodeInfos(s.Nodes().Items()) {
			count[[2]string{i.Kind, i.Standing}]++
		}
		for of, n := range count {
			is(float64(n), of[:]...)
		}
	})
	each := func(add func(name, help string, labels []string, read func(func(float64, ...string))), name, help string, labels []string, read func(*NodeInfo, func(float64, ...string))) {
		add(name, help, append([]string{"node"}, labels...), func(is func(float64, ...string)) {
			for _, i := range s.nodeInfos(s.Nodes().Items()) {
				read(&i, func(v float64, labels ...string) { is(v, append([]string{i.Name}, labels...)...) })
			}
		})
	}
	each(m.own.Gauges, "node_load_ratio", "How much of its room a node has taken: a storage node of its disk, a compute node of its queue.", nil, func(i *NodeInfo, is func(float64, ...string)) { is(i.Load) })
	each(m.own.Gauges, "node_chunks", "Chunks that a storage node has in custody, or a compute node has now.", nil, func(i *NodeInfo, is func(float64, ...string)) {
		if i.Storage != nil {
			is(float64(i.Storage.Chunks))
		} else if i.Compute != nil {
			is(float64(i.Compute.Running + i.Compute.Queued))
		}
	})
	each(m.own.Totals, "node_calls_total", "Calls of a compute node since its start, by outcome: called, failed, refused.", []string{"outcome"}, func(i *NodeInfo, is func(float64, ...string)) {
		if c := i.Compute; c != nil {
			is(float64(c.Called), "called")
			is(float64(c.Failed), "failed")
			is(float64(c.Refused), "refused")
		}
	})
	each(m.own.Totals, "node_cpu_seconds_total", "Processor time that a compute node's calls have taken since its start.", nil, func(i *NodeInfo, is func(float64, ...string)) {
		if i.Compute != nil {
			is(time.Duration(i.Compute.CPUTime).Seconds())
		}
	})
	each(m.own.Totals, "node_pieces_total", "Pieces that a cache was asked for since its start: hits, misses, and of these failed.", []string{"outcome"}, func(i *NodeInfo, is func(float64, ...string)) {
		if c := i.Cache; c != nil {
			is(float64(c.Hits), "hits")
			is(float64(c.Misses), "misses")
			is(float64(c.Failed), "failed")
		}
	})
}

// publish puts an event on the bus.
func (s *Service) publish(kind string, attrs any) {
	if s.Bus != nil && s.metrics.events.Allow() {
		s.Bus.Publish(Name+"."+kind, attrs)
	}
}
