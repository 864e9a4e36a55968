package tree

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// meterBase is added to a channel's number to make its meter's: above those of critical
	// flows, and below 2^18, of which Open vSwitch has so many.
	meterBase = 0x20000
	// spare is how much more than its rate a channel may send, in percent: headers, and what
	// an encoder does not know beforehand.
	spare = 25
	// leastBurst is the least that a meter lets through at once, in kbit: a key frame.
	leastBurst = 1000
)

// MeterNumber is the number of the meter of the channel with a number, where it comes in.
func MeterNumber(channel uint16) uint32 { return meterBase + uint32(channel) }

// meterOf holds a channel to its rate, of which it may send a second's at once.
func meterOf(d openflow.DatapathID, id uint32, rate uint64) network.Meter {
	kbit := uint32(min((rate+rate*spare/100+999)/1000, 1<<31))
	return network.Meter{
		Switch: d, ID: id, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit, leastBurst)}},
	}
}

// Unmetered is a channel's program without its meters.
func Unmetered(p network.Program) network.Program {
	p.Meters, p.Rules = nil, slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].Meter = 0
	}
	return p
}
