package cinema

import (
	"fmt"
	"maps"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// rateWindowLength is how long a channel may exceed its declared rate before this is
	// reported.
	rateWindowLength = 10 * time.Second
	// minSampleInterval is the least time between two samples.
	minSampleInterval = 500 * time.Millisecond
	// headroomPercent is how far a channel may exceed its declared rate, because of headers.
	headroomPercent = 10
)

// rateWindow holds the bit rates that an ingress gateway has reported for a channel in the last
// rateWindowLength.
type rateWindow struct {
	samples []rateSample
	// full says that the samples cover the whole window.
	full bool
}

type rateSample struct {
	at   time.Time
	rate units.Rate
}

// add adds a sample, and drops those that have left the window.
func (m *rateWindow) add(rate units.Rate, now time.Time) {
	if n := len(m.samples); n > 0 && now.Sub(m.samples[n-1].at) < minSampleInterval {
		return
	}
	m.samples = append(m.samples, rateSample{now, rate})
	for now.Sub(m.samples[0].at) >= rateWindowLength {
		m.samples = m.samples[1:]
		m.full = len(m.samples) > 1 // with one sample, nothing was reported for a whole window
	}
}

// excess returns a message if the channel sends more than it declares, and "" otherwise.
func (m *rateWindow) excess(declared units.Rate) string {
	if m == nil || !m.full || len(m.samples) == 0 {
		return ""
	}
	sum := units.Rate(0)
	for _, x := range m.samples {
		sum += x.rate / units.Rate(len(m.samples))
	}
	if sum <= declared+declared*headroomPercent/100 {
		return ""
	}
	return fmt.Sprintf("it sends %v on average of the last %v, and %v are declared and kept for it: declare more, or have its producer send less", sum, rateWindowLength, declared)
}

// recordRates adds a sample for each live channel that the gateway has reported.
func (h *ingressState) recordRates(now time.Time) {
	maps.DeleteFunc(h.rates, func(channel string, _ *rateWindow) bool { return h.reported[channel].OnAir != gatewayapi.OnAirLive })
	for name, c := range h.reported {
		if c.OnAir != gatewayapi.OnAirLive {
			continue
		}
		if h.rates[name] == nil {
			h.rates[name] = &rateWindow{}
		}
		h.rates[name].add(c.Measured, now)
	}
}
