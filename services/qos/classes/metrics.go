package classes

import (
	"strconv"

	"github.com/sluice-net/sluice/kit"
)

// newMetrics returns the service's Prometheus metrics.
func newMetrics(classes *table, plan *planner) *kit.Metrics {
	m := kit.NewMetrics("qos")
	m.Gauges("classes", "Classes of traffic by state.", []string{"state"}, func(is func(float64, ...string)) {
		states := map[string]int{StateProvisioning: 0, StateActive: 0, StateDegraded: 0, StateIneffective: 0}
		classes.mu.Lock()
		for _, e := range classes.byName {
			state, _ := plan.stateOf(e)
			states[state]++
		}
		classes.mu.Unlock()
		for state, n := range states {
			is(float64(n), state)
		}
	})
	queue := func(name, help string, value func(*sample) uint64) {
		m.Totals(name, help, []string{"class", "switch", "port"}, func(is func(float64, ...string)) {
			classes.mu.Lock()
			defer classes.mu.Unlock()
			for name, e := range classes.byName {
				for at, x := range e.samples {
					is(float64(value(x)), name, at.Switch.String(), strconv.Itoa(int(at.Port)))
				}
			}
		})
	}
	queue("class_bytes_total", "Bytes that a class's queue has sent.", func(x *sample) uint64 { return x.total.Bytes })
	queue("class_packets_total", "Packets that a class's queue has sent.", func(x *sample) uint64 { return x.total.Packets })
	queue("class_drops_total", "Packets that a class's queue has dropped.", func(x *sample) uint64 { return x.total.Drops })
	return m
}
