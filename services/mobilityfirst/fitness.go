package mobilityfirst

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// fullFrom is the load from which a node is full, and fullUntil that below which it is not any more.
	fullFrom, fullUntil = 0.9, 0.85
	// fullAfter is how many reports in a row have to say so: a compute node's load goes up and down by a fifth with a chunk.
	fullAfter = 3
	// unknownLoad is that of a place of which no node tells.
	unknownLoad = 0.5
)

// fullness is whether a node is full.
type fullness struct {
	is      bool
	against int // reports in a row that say otherwise
}

// hear takes the load of a report.
func (f *fullness) hear(load float64) {
	limit := fullFrom
	if f.is {
		limit = fullUntil
	}
	if load >= limit == f.is {
		f.against = 0
		return
	}
	if f.against++; f.against == fullAfter {
		*f = fullness{is: !f.is}
	}
}

// standing is whether a place of a name is to get new paths; what comes first is better.
type standing int

const (
	fit standing = iota
	isTooFull
	drains
	isSilent
)

var standings = [...]string{"fit", "full", "draining", "silent"}

// String is what the API shows of it.
func (s standing) String() string { return standings[s] }

// fitness is how well a place of a name is suited for a new path.
type fitness struct {
	standing standing
	load     float64
}

// compare orders fitness, the best first.
func (f fitness) compare(o fitness) int {
	return cmp.Or(cmp.Compare(f.standing, o.standing), cmp.Compare(f.load, o.load))
}

// fitnessOf is that of a node.
func fitnessOf(s *agents.State, t *told) fitness {
	f := fitness{load: t.report.Load()}
	switch {
	case s.Draining:
		f.standing = drains
	case s.Liveness != agents.Up:
		f.standing = isSilent
	case t.full.is:
		f.standing = isTooFull
	}
	return f
}

// fitness is that of a place of a name, by what the nodes tell that have proven the name and say that they are there. If
// several do, the best counts: none is harmed by what another says of its place.
func (n *nodes) fitness(name frame.GUID, at place) fitness {
	best, known := fitness{load: unknownLoad}, false
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range n.by[name] {
		t, a := n.told[of], n.registry.Get(of)
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

// option is a place to which somebody may be led.
type option struct {
	// cost is what the way there costs; math.MaxInt if there is none.
	cost int
	fitness
}

// compare orders options, the best first: one to which there is a way, that stands better, to which the way costs
// less, and that has less to do.
func (o option) compare(p option) int {
	unreachable := func(o option) int {
		if o.cost == math.MaxInt {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(unreachable(o), unreachable(p)), cmp.Compare(o.standing, p.standing), cmp.Compare(o.cost, p.cost), cmp.Compare(o.load, p.load))
}

// best is the first of the best options.
func best(all []option) int {
	best := 0
	for i := range all {
		if all[i].compare(all[best]) < 0 {
			best = i
		}
	}
	return best
}

// spared are the indices of places that are asked where all are: not those that drain, but for the one to which whoever
// asks is led already (-1 for none), if there is another beside that which is heard.
func spared(all []fitness, led int) []int {
	var some, every []int
	others := 0
	for i, o := range all {
		every = append(every, i)
		if o.standing != drains || i == led {
			some = append(some, i)
		}
		if o.standing < drains && i != led {
			others++
		}
	}
	if others == 0 {
		return every
	}
	return some
}
