package flowpath

import "time"

// Counter is what a flow has carried according to a switch's counters. Rate is in bits per
// second, at the last reading.
type Counter struct {
	Bytes uint64
	At    time.Time
	Rate  uint64
}

// Read records a reading and returns the rate since the previous one. It returns false if
// there is none.
func (c *Counter) Read(bytes uint64, at time.Time) (uint64, bool) {
	old := *c
	if !at.After(old.At) {
		return 0, false
	}
	c.Bytes, c.At, c.Rate = bytes, at, 0
	if old.At.IsZero() || bytes < old.Bytes {
		return 0, false
	}
	c.Rate = uint64(float64(bytes-old.Bytes) * 8 / at.Sub(old.At).Seconds())
	return c.Rate, true
}
