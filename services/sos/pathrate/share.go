package pathrate

// Demand is what one of the users of a rate has to send.
type Demand struct {
	Wants  float64 // bytes a second; +Inf if the user would send as much as it may
	Weight float64 // above zero
}

// MaxMinShare returns the max-min fair share of a rate for a weight of one: the largest share that
// all users can have if none takes more than it wants. If no user wants more than it gets, that is
// the whole rate.
func MaxMinShare(rate float64, users []Demand) float64 {
	share := 0.0
	for {
		left, weight := rate, 0.0
		for _, d := range users {
			if d.Wants < share*d.Weight {
				left -= d.Wants
			} else {
				weight += d.Weight
			}
		}
		if weight == 0 {
			return rate
		}
		next := left / weight
		if next <= share*1.001 {
			return next
		}
		share = next
	}
}

// ShareInGroups divides a rate among users in groups, and returns the most that each user may send,
// in the order of groups. No group may be empty. A group counts as one user that wants what its
// users want together, with the weight of its heaviest user. What the group gets is divided among
// its users by weight. Both divisions are max-min fair. A user that wants little leaves the rest to
// others, first to those of its group, but may at any time send as much as those that want more.
func ShareInGroups(rate float64, groups [][]Demand) [][]float64 {
	together := make([]Demand, len(groups))
	for i, users := range groups {
		for _, d := range users {
			together[i].Wants += d.Wants
			together[i].Weight = max(together[i].Weight, d.Weight)
		}
	}
	given := make([][]float64, len(groups))
	share := MaxMinShare(rate, together)
	for i, users := range groups {
		most := min(share*together[i].Weight, rate) // the share exceeds the rate if no group needs more
		own := MaxMinShare(most, users)
		for _, d := range users {
			given[i] = append(given[i], min(own*d.Weight, most))
		}
	}
	return given
}
