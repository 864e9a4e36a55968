package tree

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// meterBase is added to a channel's number to make its meter's. The result is above the
	// meters of critical flows, and below 2^18, which is how many Open vSwitch has.
	meterBase = 0x20000
	// headroomPercent is how far a channel may exceed its rate: headers, and what an encoder
	// cannot predict.
	headroomPercent = 25
	// minBurst is the least burst of a meter, in kbit: a key frame.
	minBurst = 1000
)

// MeterNumber returns the number of a channel's meter at the switch where it enters.
func MeterNumber(channel uint16) uint32 { return meterBase + uint32(channel) }

// newMeter returns a meter that limits a channel to its rate, with a burst of one second.
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
