package reserve

// historyLen is the number of readings of a flow's counters that are kept. The older of two
// readings is as old as any measurement of a link that is polled at the same interval.
const historyLen = 2

// rateHistory holds the latest rates of a flow, in bit/s.
type rateHistory struct {
	rates [historyLen]uint64
	count int
}

func (s *rateHistory) add(rate uint64) {
	s.rates[s.count%historyLen] = rate
	s.count++
}

// maxRate returns the greatest rate of the flow that a measurement of its links may contain.
func (s *rateHistory) maxRate() uint64 { return max(s.rates[0], s.rates[1]) }

// minRate returns the least of the latest rates; zero if there are too few readings.
func (s *rateHistory) minRate() uint64 {
	if s.tooShort() {
		return 0
	}
	return min(s.rates[0], s.rates[1])
}

// tooShort reports whether there are too few readings to judge by. The first reading does not
// count, because it may cover a time before the flow's first packet.
func (s *rateHistory) tooShort() bool { return s.count <= historyLen }
