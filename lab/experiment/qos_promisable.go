package experiment

import "maps"

// promisable reports whether all accepted flows of a published run can have been promised their
// rate at once. A link of 15 Mbit/s has room for one flow of 10 Mbit/s in each direction, so flows
// at the same time need paths that share no link.
func promisable(run []publishedFlow) bool {
	at := map[string]string{}
	for _, h := range acceptanceHosts() {
		at[h[0]] = h[1]
	}
	var accepted []publishedFlow
	for _, f := range run {
		if !f.accepted {
			continue
		}
		accepted = append(accepted, f)
		var together [][2]string
		for _, g := range accepted {
			if g.start+g.last > f.start {
				together = append(together, [2]string{at[g.from], at[g.to]})
			}
		}
		if !disjoint(together, map[[2]string]bool{}) {
			return false
		}
	}
	return true
}

// disjoint reports whether pairs of switches can be joined by paths that use no link in the same
// direction, and none that is taken.
func disjoint(pairs [][2]string, taken map[[2]string]bool) bool {
	if len(pairs) == 0 {
		return true
	}
	return walk(pairs[0][0], pairs[0][1], map[string]bool{}, taken, func(with map[[2]string]bool) bool { return disjoint(pairs[1:], with) })
}

// walk tries all paths from one switch to another until found, which it calls with the links that
// are then taken, returns true.
func walk(at, to string, seen map[string]bool, taken map[[2]string]bool, found func(map[[2]string]bool) bool) bool {
	if at == to {
		return found(maps.Clone(taken))
	}
	seen[at] = true
	defer delete(seen, at)
	for _, t := range acceptanceTrunks {
		for _, step := range [][2]string{t, {t[1], t[0]}} {
			if step[0] != at || seen[step[1]] || taken[step] {
				continue
			}
			taken[step] = true
			ok := walk(step[1], to, seen, taken, found)
			delete(taken, step)
			if ok {
				return true
			}
		}
	}
	return false
}
