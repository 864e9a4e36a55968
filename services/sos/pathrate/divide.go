package pathrate

import "math"

// Sender is one of the senders among which Divide divides links.
type Sender struct {
	Links []int   // indices of the links that its path passes
	Wants float64 // bytes a second that it has to send; +Inf if it would send as much as it may
}

// Divide divides links with the given capacities, in bytes a second, among senders, and returns the
// most that each may send. All figures may be in another unit, too. The division is max-min fair: nobody has less than another of the same
// link unless it wants no more, or another link of its path limits it. A sender that wants little
// leaves the rest to others, but may at any time send as much as if it wanted more.
func Divide(capacities []float64, senders []Sender) []float64 {
	given := fill(capacities, senders)
	on := make([][]float64, len(capacities)) // what is given to the senders of each link
	for i, s := range senders {
		for _, l := range s.Links {
			on[l] = append(on[l], given[i])
		}
	}
	for i, s := range senders {
		if math.IsInf(s.Wants, 1) {
			continue
		}
		most := math.Inf(1)
		for _, l := range s.Links {
			most = min(most, level(capacities[l], on[l], given[i]))
		}
		given[i] = most
	}
	return given
}

// fill raises the rates of all senders together. A sender stops where it has what it wants, or where
// a link of its path is full.
func fill(capacities []float64, senders []Sender) []float64 {
	left, users := append([]float64(nil), capacities...), make([]int, len(capacities))
	given, open := make([]float64, len(senders)), make([]int, len(senders))
	for i, s := range senders {
		open[i] = i
		for _, l := range s.Links {
			users[l]++
		}
	}
	for len(open) > 0 {
		// The next to stop are the senders that want least, or those of the fullest link.
		next := math.Inf(1)
		for _, i := range open {
			next = min(next, senders[i].Wants)
			for _, l := range senders[i].Links {
				next = min(next, left[l]/float64(users[l]))
			}
		}
		rest := open[:0]
		var stopped []int
		for _, i := range open {
			stops := senders[i].Wants <= next
			for _, l := range senders[i].Links {
				stops = stops || left[l]/float64(users[l]) <= next*(1+1e-9)
			}
			if stops {
				given[i], stopped = next, append(stopped, i)
			} else {
				rest = append(rest, i)
			}
		}
		for _, i := range stopped {
			for _, l := range senders[i].Links {
				left[l] = max(left[l]-next, 0)
				users[l]--
			}
		}
		open = rest
	}
	return given
}

// level returns what a sender, to which own was given, would get of a link if it wanted more.
func level(capacity float64, given []float64, own float64) float64 {
	share := 0.0
	for {
		left, takers := capacity+min(own, share), 1
		for _, g := range given {
			if g < share {
				left -= g
			} else {
				takers++
			}
		}
		if own >= share { // counted among the others
			takers--
		}
		next := left / float64(takers)
		if next <= share*1.001 || math.IsInf(next, 1) {
			return next
		}
		share = next
	}
}
