package plugin

import (
	"fmt"
	"maps"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/internal/units"
)

const (
	// measuredFor is how long a channel may send more than it declares without a word.
	measuredFor = 10 * time.Second
	// measuredEvery is the least time between two figures that count.
	measuredEvery = 500 * time.Millisecond
	// headroom is how much more than it declares a channel may send, in percent: headers.
	headroom = 10
)

// measured is what a channel has sent in the last while, as its ingress gateway tells it.
type measured struct {
	samples []sample
	// whole says that they are of no less than measuredFor.
	whole bool
}

type sample struct {
	at   time.Time
	rate units.Rate
}

// add takes in a figure.
func (m *measured) add(rate units.Rate, now time.Time) {
	if n := len(m.samples); n > 0 && now.Sub(m.samples[n-1].at) < measuredEvery {
		return
	}
	m.samples = append(m.samples, sample{now, rate})
	for now.Sub(m.samples[0].at) >= measuredFor {
		m.samples = m.samples[1:]
		m.whole = len(m.samples) > 1 // else nothing was told for as long
	}
}

// excess says that the channel sends more than is declared; empty if it does not.
func (m *measured) excess(declared units.Rate) string {
	if m == nil || !m.whole || len(m.samples) == 0 {
		return ""
	}
	sum := units.Rate(0)
	for _, x := range m.samples {
		sum += x.rate / units.Rate(len(m.samples))
	}
	if sum <= declared+declared*headroom/100 {
		return ""
	}
	return fmt.Sprintf("it sends %v on average of the last %v, and %v are declared and kept for it: declare more, or have its producer send less", sum, measuredFor, declared)
}

// measure takes in what a gateway tells of what its channels send.
func (h *head) measure(now time.Time) {
	maps.DeleteFunc(h.measured, func(channel string, _ *measured) bool { return h.told[channel].OnAir != gatewayapi.OnAirLive })
	for name, c := range h.told {
		if c.OnAir != gatewayapi.OnAirLive {
			continue
		}
		if h.measured[name] == nil {
			h.measured[name] = &measured{}
		}
		h.measured[name].add(c.Measured, now)
	}
}
