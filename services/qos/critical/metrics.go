package critical

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// metrics holds the service's Prometheus metrics.
type metrics struct {
	*kit.Metrics
	outcomes     *prometheus.CounterVec
	setup, moves *prometheus.HistogramVec
}

func newMetrics(flows *table, book *reserve.Book) *metrics {
	m := kit.NewMetrics("qos")
	m.Gauges("flows", "Critical flows, by state.", []string{"state"}, func(is func(float64, ...string)) {
		states := map[State]int{StatePlacing: 0, StateAccepted: 0, StateOversubscribed: 0, StateBestEffort: 0}
		for _, f := range flows.all(func(*flow) bool { return true }) {
			states[f.record().State]++
		}
		for state, n := range states {
			is(float64(n), string(state))
		}
	})
	m.Gauges("promised_bytes_per_second", "Capacity promised on a link, by the port from which it leads.", []string{"port"}, func(is func(float64, ...string)) {
		for _, line := range book.Reservations() {
			is(float64(line.Promised)/8, line.Link)
		}
	})
	return &metrics{
		m,
		m.Counters("placements_total", "First packets of critical flows, by outcome.", "outcome"),
		m.Durations("placement_seconds", "Time from a flow's first packet until its release."),
		m.Durations("move_seconds", "Duration of a flow's move to another path."),
	}
}

func (m *metrics) placed(state State, took time.Duration) {
	m.outcomes.WithLabelValues(string(state)).Inc()
	m.setup.WithLabelValues().Observe(took.Seconds())
}
