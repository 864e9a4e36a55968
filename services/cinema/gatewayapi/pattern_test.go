package gatewayapi

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPatternAge checks that a clock's age is right to its unit.
func TestPatternAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "drawn"))
		age := time.Duration(rapid.Int64Range(0, 16_000_000).Draw(t, "age")) * time.Microsecond
		units := uint16(drawn.UnixMicro() / PatternClockUnit.Microseconds() % (1 << PatternClockBits))
		got := PatternAge(units^units>>1, drawn.Add(age))
		if got < age || got >= age+PatternClockUnit {
			t.Errorf("%v after it was drawn it says %v", age, got)
		}
	})
}
