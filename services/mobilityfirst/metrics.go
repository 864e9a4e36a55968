package mobilityfirst

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
)

// metrics holds the service's metrics for Prometheus.
type metrics struct {
	own                   *kit.Metrics
	withPath, withoutPath prometheus.Counter // requests that are forwarded, with and without a path
	unknownName           prometheus.Counter // requests for names without a place
	dropped               *prometheus.CounterVec
	setup                 prometheus.Observer
}

func newMetrics(s *Service) *metrics {
	m := &metrics{own: kit.NewMetrics(Name)}
	m.own.Gauges("names", "Names with a known place.", nil, func(report func(float64, ...string)) { report(float64(s.names.count())) })
	m.own.Gauges("paths", "Paths that have labels.", nil, func(report func(float64, ...string)) { report(float64(s.paths.count())) })
	requests := m.own.Counters("requests_total", "Path requests, by outcome: path; none: passed on without a label; unknown: no host has sent a hello for the name.", "outcome")
	m.withPath, m.withoutPath, m.unknownName = requests.WithLabelValues("path"), requests.WithLabelValues("none"), requests.WithLabelValues("unknown")
	m.dropped = m.own.Counters("dropped_total", "Frames of hosts that the controller did not forward, by reason.", "reason")
	m.nodes(s)
	m.setup = m.own.Durations("setup_seconds", "Time from a request for a path that did not exist until the switches had its rules.").WithLabelValues()
	return m
}

// nodes adds the metrics of nodes.
func (m *metrics) nodes(s *Service) {
	m.own.Gauges("nodes", "Declared nodes, by kind (empty: not known yet) and standing: fit, full, silent or draining.", []string{"kind", "standing"}, func(report func(float64, ...string)) {
		count := map[[2]string]int{}
		for _, i := range s.nodeInfos(s.Nodes().Items()) {
			count[[2]string{i.Kind, i.Standing}]++
		}
		for of, n := range count {
			report(float64(n), of[:]...)
		}
	})
	each := func(add func(name, help string, labels []string, read func(func(float64, ...string))), name, help string, labels []string, read func(*NodeInfo, func(float64, ...string))) {
		add(name, help, append([]string{"node"}, labels...), func(report func(float64, ...string)) {
			for _, i := range s.nodeInfos(s.Nodes().Items()) {
				read(&i, func(v float64, labels ...string) { report(v, append([]string{i.Name}, labels...)...) })
			}
		})
	}
	each(m.own.Gauges, "node_load_ratio", "Share of its room that a node uses: a storage node of its disk, a compute node of its queue.", nil, func(i *NodeInfo, report func(float64, ...string)) { report(i.Load) })
	each(m.own.Gauges, "node_chunks", "Chunks that a storage node has in custody, or a compute node has now.", nil, func(i *NodeInfo, report func(float64, ...string)) {
		if i.Storage != nil {
			report(float64(i.Storage.Chunks))
		} else if i.Compute != nil {
			report(float64(i.Compute.Running + i.Compute.Queued))
		}
	})
	each(m.own.Totals, "node_calls_total", "Calls of a compute node since its start, by outcome: called, failed, refused.", []string{"outcome"}, func(i *NodeInfo, report func(float64, ...string)) {
		if c := i.Compute; c != nil {
			report(float64(c.Called), "called")
			report(float64(c.Failed), "failed")
			report(float64(c.Refused), "refused")
		}
	})
	each(m.own.Totals, "node_cpu_seconds_total", "Processor time that a compute node's calls have taken since its start.", nil, func(i *NodeInfo, report func(float64, ...string)) {
		if i.Compute != nil {
			report(time.Duration(i.Compute.CPUTime).Seconds())
		}
	})
	each(m.own.Totals, "node_pieces_total", "Pieces that were requested from a cache since its start: hits, misses, and of these failed.", []string{"outcome"}, func(i *NodeInfo, report func(float64, ...string)) {
		if c := i.Cache; c != nil {
			report(float64(c.Hits), "hits")
			report(float64(c.Misses), "misses")
			report(float64(c.Failed), "failed")
		}
	})
}
