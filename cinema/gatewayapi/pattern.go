package gatewayapi

import (
	"math"
	"time"
)

// What a channel's test pattern has in its upper row, from the left: a square of the channel's
// colour, two cells wide, and a cell for each bit of a clock, white if it is set. A cell's edge is
// a twelfth of the picture's height; a picture that is too narrow has fewer bits.

// PatternClockBits is how many bits the clock has: the highest first, in Gray code, so that a
// picture drawn while the clock goes on is wrong by a unit at most.
const PatternClockBits = 13

// PatternClockUnit is what the clock counts: the time of day of the gateway's machine since 1970.
// It begins again after 16.4 s.
const PatternClockUnit = 2 * time.Millisecond

// PatternColour is that of the square in a channel's test pattern, as 0xRRGGBB: neighbours'
// are far apart, so that whoever sees a picture knows of which channel it is.
func PatternColour(number uint16) uint32 {
	const golden = 0x9e3779
	return uint32(number) * golden & 0xffffff
}

// PatternPitch is that of the tone in a channel's test pattern, in Hz: each number's a semitone
// above that of the one before it, over three octaves.
func PatternPitch(number uint16) int { return int(220 * math.Pow(2, float64(number%36)/12)) }

// PatternAge is how old the picture of a test pattern is that is seen at a time with these bits
// of the clock; right for pictures that are younger than the clock's 16.4 s, if both machines
// have the same time.
func PatternAge(clock uint16, seen time.Time) time.Duration {
	drawn := int64(clock)
	for shift := 1; shift < PatternClockBits; shift *= 2 {
		drawn ^= drawn >> shift
	}
	now := seen.UnixMicro()
	unit := PatternClockUnit.Microseconds()
	round := unit << PatternClockBits
	return time.Duration((now-drawn*unit)%round) * time.Microsecond
}
