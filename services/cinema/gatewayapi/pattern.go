package gatewayapi

import (
	"math"
	"time"
)

// The top row of a channel's test pattern contains, from the left, a square in the channel's
// colour, two cells wide, and a cell for each bit of a clock, white if the bit is set. The edge
// of a cell is a twelfth of the picture's height. A picture that is too narrow has fewer bits.

// PatternClockBits is the number of the clock's bits. The highest bit is the leftmost cell. The
// bits are in Gray code, so that a picture drawn while the clock advances is wrong by one unit at
// most.
const PatternClockBits = 13

// PatternClockUnit is the unit of the clock, which counts the time of day of the gateway's
// machine since 1970. It wraps around after 16.4 s.
const PatternClockUnit = 2 * time.Millisecond

// PatternColour returns the colour of the square in a channel's test pattern, as 0xRRGGBB.
// Channels with adjacent numbers have very different colours, so that a picture identifies its
// channel.
func PatternColour(number uint16) uint32 {
	const golden = 0x9e3779
	return uint32(number) * golden & 0xffffff
}

// PatternPitch returns the pitch of the tone in a channel's test pattern, in Hz. Each number's
// pitch is a semitone above that of the number before it, over three octaves.
func PatternPitch(number uint16) int { return int(220 * math.Pow(2, float64(number%36)/12)) }

// PatternAge returns the age of a test pattern's picture, given the bits of its clock and the
// time at which it was seen. It is correct for pictures younger than 16.4 s, if the clocks of
// both machines agree.
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
