package graph

import (
	"errors"
	"fmt"
	"time"
)

// MaxBounds is the largest number of bounds of a problem.
const MaxBounds = 3

// Problem asks for the best path among those that meet all bounds. Without bounds it takes
// polynomial time. With one bound it is the restricted shortest path problem, with more the
// multi-constrained optimal path problem, both NP-complete in general (Wang and Crowcroft,
// "Quality-of-Service Routing for Supporting Multimedia Applications", IEEE JSAC 14(7), 1996).
//
// Sums are compared within one part in 10^12: more than the rounding error of a sum of thousands
// of weights, less than one for sums of whole numbers below 10^12. With whole numbers, equal
// sums compare as equal.
type Problem struct {
	From, To int
	// Cost is to be minimised. Among paths of equal cost the one with fewer arcs wins.
	Cost Weights
	// MaxCost bounds the cost; zero means no bound.
	MaxCost float64
	// Width is the width of each arc. Arcs narrower than MinWidth are excluded. Without widths
	// all arcs are wide enough.
	Width    Weights
	MinWidth float64
	// Widest asks for the path whose narrowest arc is widest; Cost chooses among such paths. It
	// cannot be combined with MaxCost.
	Widest bool
	// Bounds are sums that the path must not exceed.
	Bounds []Bound
	Limit  Limit
}

// Bound is the greatest sum that a path may have in some weights.
type Bound struct {
	Weights Weights
	Max     float64
}

// Limit bounds the exact search. The first run of the search has a quarter of the time. If that
// does not suffice, relaxation approximates the answer, and a second run, guided by relaxation,
// has the rest of the time. Solve may exceed the limit by the time of one search of a shortest
// path. A path that the second run has found has the least cost, but another path of equal cost
// may have fewer arcs.
type Limit struct {
	Labels int           // partial paths kept at once; zero means DefaultLabels
	Time   time.Duration // zero means no limit
}

// DefaultLabels is the default of Limit.Labels. So many partial paths take some 40 MB.
const DefaultLabels = 1 << 19

// Algorithm names the algorithm that found a path.
type Algorithm string

// The algorithms.
const (
	Dijkstra       Algorithm = "dijkstra"
	ShortestWidest Algorithm = "shortest-widest"
	LabelSetting   Algorithm = "label-setting"
	BranchAndBound Algorithm = "branch-and-bound"
	LARAC          Algorithm = "larac"
	Subgradient    Algorithm = "subgradient"
	Relaxation     Algorithm = "relaxation"
	Bisection      Algorithm = "bisection"
)

// Solution is a path that meets all bounds.
type Solution struct {
	Path Path
	// Value is the path's cost, or its width if the widest path was asked for.
	Value float64
	// Bound is a lower bound on the cost, or an upper bound on the width, of all paths that meet the
	// bounds.
	Bound float64
	// Exact reports whether Value equals Bound, apart from rounding: then no path is better.
	Exact     bool
	Algorithm Algorithm
	// Labels counts the partial paths that the exact search kept.
	Labels int
}

// ErrUndecided means that the limit was reached before a path was found or proved not to exist.
var ErrUndecided = errors.New("graph: limit reached before a path was found")

// Reasons why there is no path, besides the number of a bound that cannot be met.
const (
	Disconnected = -1 - iota // no path of usable arcs at all
	TooCostly                // the cheapest path that meets the bounds exceeds MaxCost
	Together                 // each bound can be met, but not all at once
)

// NoPathError means that no path meets the bounds. Unlike ErrUndecided, it is returned only if
// that has been proved.
type NoPathError struct {
	// Reason is Disconnected, TooCostly, Together or the number of a bound.
	Reason int
	// Least is the least sum that a path can have in the weights that Reason names.
	Least float64
}

// Error describes the reason.
func (e *NoPathError) Error() string {
	switch e.Reason {
	case Disconnected:
		return "graph: not connected"
	case TooCostly:
		return fmt.Sprintf("graph: the least cost is %g", e.Least)
	case Together:
		return "graph: no path meets all bounds together"
	}
	return fmt.Sprintf("graph: the least sum for bound %d is %g", e.Reason, e.Least)
}

// validate returns an error for an invalid problem.
func (g *Graph) validate(p *Problem) error {
	switch {
	case !g.check(p.From, p.To, p.Cost):
		return fmt.Errorf("graph: from %d to %d of %d nodes with %d costs for %d arcs", p.From, p.To, g.Nodes(), len(p.Cost), g.Arcs())
	case p.Width != nil && len(p.Width) != g.Arcs():
		return fmt.Errorf("graph: %d widths for %d arcs", len(p.Width), g.Arcs())
	case p.Widest && (len(p.Width) != g.Arcs() || p.MaxCost != 0):
		return errors.New("graph: the widest path needs widths, and takes no bound on the cost")
	case len(p.Bounds) > MaxBounds:
		return fmt.Errorf("graph: %d bounds: at most %d", len(p.Bounds), MaxBounds)
	}
	for i, b := range p.Bounds {
		if len(b.Weights) != g.Arcs() || !usable(b.Max) {
			return fmt.Errorf("graph: bound %d: %d weights for %d arcs, at most %g", i, len(b.Weights), g.Arcs(), b.Max)
		}
	}
	return nil
}
