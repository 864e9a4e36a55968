package reserve

// historyLen is how many readings of a flow's counters are kept. The older of two is as old
// as any measurement of a link that is polled as often.
const historyLen = 2

// rateHistory holds the latest rates of a flow.
type rateHistory struct {
	rates [historyLen]uint64
	count int
}

func (s *rateHistory) add(rate uint64) {
	s.rates[s.count%historyLen] = rate
	s.count++
}

// maxRate returns the most that a measurement of the flow's links may contain of it.
func (s *rateHistory) maxRate() uint64 { return max(s.rates[0], s.rates[1]) }

// minRate returns the rate that all of the latest readings have shown.
func (s *rateHistory) minRate() uint64 {
	if s.tooShort() {
		return 0
	}
	return min(s.rates[0], s.rates[1])
}

// tooShort reports whether there are too few readings to tell: the first may be of a time
// before the flow's first packet.
func (s *rateHistory) tooShort() bool { return s.count <= historyLen }
