package tree

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// meterBase is added to a channel's number to make the number of the channel's meter. The sum
	// is above the meters of critical flows, which are another service's, and below 2^18, the
	// number of meters that Open vSwitch has.
	meterBase = 0x20000
	// headroomPercent is by how many percent a channel may exceed its declared rate, because of
	// headers, and because an encoder cannot predict its rate exactly.
	headroomPercent = 25
	// minBurst is the least burst of a meter, in kbit. A key frame has to fit.
	minBurst = 1000
)

// MeterNumber returns the number of a channel's meter at the switch where it enters.
func MeterNumber(channel uint16) uint32 { return meterBase + uint32(channel) }

// newMeter returns a meter that limits a channel to its rate in bit/s plus headroomPercent. The burst
// is what the channel may send in one second, but at least minBurst.
func newMeter(d openflow.DatapathID, id uint32, rate uint64) network.Meter {
	kbit := uint32(min((rate+rate*headroomPercent/100+999)/1000, 1<<31))
	return network.Meter{
		Switch: d, ID: id, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit, minBurst)}},
	}
}

// WithoutMeters returns a channel's program without its meters.
func WithoutMeters(p network.Program) network.Program {
	p.Meters, p.Rules = nil, slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].Meter = 0
	}
	return p
}
