package flowpath

import "time"

// Counter holds the traffic of a flow according to a switch's counters. At is the time of the last
// reading. Rate is the rate at that time, in bits per second.
type Counter struct {
	Bytes uint64
	At    time.Time
	Rate  uint64
}

// Read records a reading, and returns the rate since the previous reading in bits per second. It
// returns false if there is no such rate, because the reading is the first, or not newer, or the
// counter was restarted.
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
