package bandwidth

// numbers gives flows numbers, from 1 on, the lowest that is free.
type numbers struct {
	taken []bool
	// below all numbers are taken.
	below int
}

// take takes a number; n is the one that is wanted, zero for any. One that is taken
// already is replaced.
func (s *numbers) take(n int) int {
	if n < 1 || n > maxFlows || n <= len(s.taken) && s.taken[n-1] {
		for s.below < len(s.taken) && s.taken[s.below] {
			s.below++
		}
		n = s.below + 1
	}
	for len(s.taken) < n {
		s.taken = append(s.taken, false)
	}
	s.taken[n-1] = true
	return n
}

func (s *numbers) free(n int) {
	s.taken[n-1] = false
	s.below = min(s.below, n-1)
}
