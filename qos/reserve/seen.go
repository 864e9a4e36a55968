package reserve

// readings is how many readings of a flow's counters have to show its traffic. The
// older of two is as old as any measurement of a link that is polled as often.
const readings = 2

// seen remembers the latest rates of a flow.
type seen struct {
	rates [readings]uint64
	count int
}

func (s *seen) add(rate uint64) {
	s.rates[s.count%readings] = rate
	s.count++
}

// most is what a measurement of its links may contain of it.
func (s *seen) most() uint64 { return max(s.rates[0], s.rates[1]) }

// least is what all of the latest readings have shown.
func (s *seen) least() uint64 {
	if s.young() {
		return 0
	}
	return min(s.rates[0], s.rates[1])
}

// young says that there are too few readings to tell: the first may be of a time before
// the flow's first packet.
func (s *seen) young() bool { return s.count <= readings }
