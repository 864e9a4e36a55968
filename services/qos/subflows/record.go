package subflows

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/qos/flowpath"
)

// Subflow is a subflow as the API shows it.
type Subflow struct {
	ID         string         `json:"id"`
	Connection string         `json:"connection" doc:"The token of its connection, and the host that has chosen it; of plain TCP, the connection itself" example:"9f3c21aa@10.0.0.2"`
	Plain      bool           `json:"plain" doc:"Whether it is all of a connection of plain TCP, which samples of packets have shown to be large"`
	Flow       string         `json:"flow" example:"tcp 10.0.0.1:40000 > 10.0.0.2:5001"`
	Throughput uint64         `json:"bits_per_second" doc:"What it carried at the last reading of its counters, in the direction of more"`
	Bytes      uint64         `json:"bytes" doc:"What it has carried there"`
	Reverse    bool           `json:"reverse" doc:"Whether that direction is against its SYN and its path, as in a download"`
	Path       []flowpath.Hop `json:"path"`
	Since      time.Time      `json:"since"`
	Moves      int            `json:"moves" doc:"How often it was given another path"`
	Reason     string         `json:"reason,omitempty" doc:"Why it has ended"`
}

// String returns the connection in the form of the API.
func (c connection) String() string { return fmt.Sprintf("%08x@%v", c.Token, c.Receiver) }

// record returns the record of the subflow.
func (f *subflow) record() Subflow {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := f.Connection.String()
	if f.Plain {
		name = f.Header.String()
	}
	own, answers := f.counters[forward], f.counters[reverse]
	return Subflow{
		ID: f.id, Connection: name, Plain: f.Plain, Flow: f.Header.String(), Throughput: f.currentRate(), Bytes: max(own.Bytes, answers.Bytes), Reverse: answers.Bytes > own.Bytes,
		Path: flowpath.HopsOf(f.Hops), Since: f.Since, Moves: f.Moves,
	}
}

// Subflows returns the placed subflows, the oldest first.
func (s *Service) Subflows() []Subflow {
	out := []Subflow{}
	for _, f := range s.flows.all() {
		if f.path() != nil {
			out = append(out, f.record())
		}
	}
	return out
}

// Register adds the operations and metrics of subflows to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	kit.Show(kit.NewREST(a, "qos"), "subflows", "List the further subflows of large connections that have been placed, with their paths", s.Subflows)
}

// metrics holds the Prometheus metrics of subflows.
type metrics struct {
	*kit.Metrics
	joins, large *prometheus.CounterVec
	setup        prometheus.Observer
	moves        prometheus.Counter
	quiet        prometheus.Counter
}

// countOutcome counts the outcome for a subflow, or for a connection of plain TCP.
func (m *metrics) countOutcome(f *subflow, outcome string) {
	if f.Plain {
		m.large.WithLabelValues(outcome).Inc()
		return
	}
	m.joins.WithLabelValues(outcome).Inc()
}

func newMetrics(flows *table) *metrics {
	m := kit.NewMetrics("qos_subflow")
	m.Gauges("placed", "Further subflows of connections that have a path of their own.", nil, func(is func(float64, ...string)) {
		n := 0
		for _, f := range flows.all() {
			if f.path() != nil {
				n++
			}
		}
		is(float64(n))
	})
	return &metrics{
		m,
		m.Counters("syns_total", "SYNs with the mark of further subflows, by what became of them.", "outcome"),
		m.Counters("large_total", "Connections of plain TCP that samples have shown to be large, by what became of them.", "outcome"),
		m.Durations("placement_seconds", "Time from a subflow's SYN until its release, or from when a connection was found to be large until it is led.").WithLabelValues(),
		m.Counter("moves_total", "Times that a subflow was given another path."),
		m.Counter("quiet_total", "Times that the marked SYNs of a port were dropped for a while, since there were too many."),
	}
}
