package reserve

// readings is how many readings of a flow's counters have to show its traffic. The
// oldest of three is older than any measurement of a link that is polled as often.
const readings = 3

// seen remembers the latest rates of a flow.
type seen struct {
	rates [readings]uint64
	next  int
}

func (s *seen) add(rate uint64) {
	s.rates[s.next] = rate
	s.next = (s.next + 1) % readings
}

// least is the traffic that every measurement of its links must contain.
func (s *seen) least() uint64 { return min(s.rates[0], s.rates[1], s.rates[2]) }

// most is what a measurement of its links may contain of it.
func (s *seen) most() uint64 { return max(s.rates[0], s.rates[1], s.rates[2]) }
