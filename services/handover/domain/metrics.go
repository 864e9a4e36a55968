package domain

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
)

// metrics holds the protocol's metrics for Prometheus.
type metrics struct {
	*kit.Metrics
	in, refusals, out *prometheus.CounterVec
	took              *prometheus.HistogramVec
	overflow          prometheus.Counter
}

func newMetrics(s *Service) *metrics {
	m := kit.NewMetrics("handover_neighbour")
	gauge := func(name, help string, value func(NeighbourStatus) int) {
		m.Gauges(name, help, []string{"neighbour"}, func(is func(float64, ...string)) {
			for _, n := range s.Neighbours() {
				is(float64(value(n)), n.Name)
			}
		})
	}
	gauge("visitors", "Devices that came from the neighbour.", func(n NeighbourStatus) int { return n.Visitors })
	gauge("abroad", "Devices whose packets are sent to the neighbour.", func(n NeighbourStatus) int { return n.Abroad })
	gauge("outbox", "Messages that have not reached the neighbour yet.", func(n NeighbourStatus) int { return n.Outbox })
	return &metrics{
		Metrics:  m,
		in:       m.Counters("received_total", "Messages of neighbours that were accepted.", "neighbour", "message"),
		refusals: m.Counters("refused_total", "Messages and answers of neighbours that were refused, by reason.", "neighbour", "message", "code"),
		out:      m.Counters("sent_total", "Messages to neighbours, by result: ok, failed, or the code of the refusal.", "neighbour", "message", "result"),
		took:     m.Durations("answer_seconds", "Time until neighbours answered.", "neighbour", "message"),
		overflow: m.Counter("unasked_total", "Unknown devices about which neighbours were not asked, because too many such requests were pending."),
	}
}

// received counts an accepted message.
func (m *metrics) received(neighbour string, kind Kind) {
	m.in.WithLabelValues(neighbour, string(kind)).Inc()
}

// refused counts a refused message.
func (m *metrics) refused(neighbour string, kind Kind, code Code) {
	if code == "" {
		code = CodeFailed
	}
	m.refusals.WithLabelValues(neighbour, string(kind), string(code)).Inc()
}

// sent counts a message to a neighbour and measures its duration.
func (m *metrics) sent(neighbour string, kind Kind, err error, took time.Duration) {
	result := "ok"
	if code := codeOf(err); code.known() {
		result = string(code)
	} else if err != nil {
		result = "failed"
	}
	m.out.WithLabelValues(neighbour, string(kind), result).Inc()
	m.took.WithLabelValues(neighbour, string(kind)).Observe(took.Seconds())
}
