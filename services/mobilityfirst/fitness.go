package mobilityfirst

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// fullThreshold is the load from which a node counts as full, and recoveredThreshold the load
	// below which it no longer does.
	fullThreshold, recoveredThreshold = 0.9, 0.85
	// fullReports is how many reports in a row have to contradict a node's state before it changes.
	// One report is not enough, because one chunk changes a compute node's load by a fifth.
	fullReports = 3
	// unknownLoad is the load of a place that no node reports.
	unknownLoad = 0.5
)

// standing ranks a place of a name for new paths by the state of its node; lower values are better.
type standing int

const (
	standingFit standing = iota
	standingFull
	standingDraining
	standingSilent
)

var standingNames = [...]string{"fit", "full", "draining", "silent"}

// String returns the standing as the API shows it.
func (s standing) String() string { return standingNames[s] }

// fitness says how suitable a place of a name is for a new path.
type fitness struct {
	standing standing
	load     float64
}

// compare orders fitness values, the best first.
func (f fitness) compare(o fitness) int {
	return cmp.Or(cmp.Compare(f.standing, o.standing), cmp.Compare(f.load, o.load))
}

// fitnessOf returns the fitness of a node.
func fitnessOf(s *agents.State, t *nodeStatus) fitness {
	f := fitness{load: t.report.Load()}
	switch {
	case s.Draining:
		f.standing = standingDraining
	case s.Liveness != agents.Up:
		f.standing = standingSilent
	case t.full.full:
		f.standing = standingFull
	}
	return f
}

// fitness returns the fitness of a place of a name. It uses the reports of nodes that have proven
// to hold the name's key and that report the place's Ethernet address. If several nodes report it,
// the best report counts, so that no node can harm another by reporting the other's place.
func (n *nodes) fitness(name frame.GUID, at place) fitness {
	best, known := fitness{load: unknownLoad}, false
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range n.byName[name] {
		t, a := n.status[of], n.registry.Get(of)
		if a == nil || !slices.Contains(t.report.MACs, at.MAC) {
			continue
		}
		s := a.State()
		if f := fitnessOf(&s, t); !known || f.compare(best) < 0 {
			best, known = f, true
		}
	}
	return best
}

// candidate is a place to which a path may lead.
type candidate struct {
	// cost is the cost of the path; math.MaxInt if there is no route.
	cost int
	fitness
}

// compare orders candidates, the best first: reachable places first, then by better standing, lower
// cost and lower load.
func (o candidate) compare(p candidate) int {
	unreachable := func(o candidate) int {
		if o.cost == math.MaxInt {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(unreachable(o), unreachable(p)), cmp.Compare(o.standing, p.standing), cmp.Compare(o.cost, p.cost), cmp.Compare(o.load, p.load))
}

// best returns the index of the first of the best candidates.
func best(all []candidate) int {
	best := 0
	for i := range all {
		if all[i].compare(all[best]) < 0 {
			best = i
		}
	}
	return best
}

// notDraining returns the indices of the places to ask when a request goes to all places. It leaves
// out draining places, except the one to which the host already has a path (current; -1 for none),
// if another place can be expected to answer.
func notDraining(all []fitness, current int) []int {
	var rest, every []int
	others := 0
	for i, o := range all {
		every = append(every, i)
		if o.standing != standingDraining || i == current {
			rest = append(rest, i)
		}
		if o.standing < standingDraining && i != current {
			others++
		}
	}
	if others == 0 {
		return every
	}
	return rest
}
