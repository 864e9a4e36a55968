package cli

import "github.com/sluice-net/sluice/kit"

// total is a counter with its values by outcome.
type total struct {
	name, help string
	read       func() map[string]uint64
}

// gauge is a value that may go up and down.
type gauge struct {
	name, help string
	read       func() float64
}

// newMetrics returns the metrics of a daemon.
func newMetrics(daemon string, totals []total, gauges []gauge) *kit.Metrics {
	m := kit.NewMetrics(daemon)
	for _, t := range totals {
		m.Totals(t.name, t.help, []string{"outcome"}, func(is func(float64, ...string)) {
			for outcome, n := range t.read() {
				is(float64(n), outcome)
			}
		})
	}
	for _, g := range gauges {
		m.Gauges(g.name, g.help, nil, func(is func(float64, ...string)) { is(g.read()) })
	}
	return m
}
