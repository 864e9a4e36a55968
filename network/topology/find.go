package topology

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-net/sluice/network/graph"
)

// Find returns the best path that enters at from, leaves at to, and meets the request.
//
// A link must be known to be good enough. If the request names a bandwidth or asks for the
// widest path, links of unknown capacity are excluded. If it bounds delay or jitter, links whose
// delay has not been measured are excluded. If delay or jitter is only the objective, an unmeasured
// link counts as one second, so that it is used when there is no other path. Unknown loss and no
// loss are both zero, so a link of unknown loss is never excluded.
func (t *Topology) Find(from, to PortRef, r Request) (Answer, error) {
	begin := time.Now()
	if err := t.validate(from, to, r); err != nil {
		return Answer{}, err
	}
	v := t.views.Get().(*searchView)
	defer t.views.Put(v)
	v.fill(t, r)
	a, err := t.search(from, to, r, v)
	a.Elapsed = time.Since(begin)
	return a, err
}

// validate returns an error for an invalid request.
func (t *Topology) validate(from, to PortRef, r Request) error {
	var problem string
	switch {
	case !t.Has(from.Switch):
		problem = fmt.Sprintf("switch %v is not connected", from.Switch)
	case !t.Has(to.Switch):
		problem = fmt.Sprintf("switch %v is not connected", to.Switch)
	case r.MaxDelay < 0 || r.MaxJitter < 0 || r.Limit < 0:
		problem = "durations must not be negative"
	case !(r.MaxLoss >= 0 && r.MaxLoss < 1):
		problem = fmt.Sprintf("loss of at most %v: want 0 (no bound) or more, below 1", r.MaxLoss)
	case int(r.Objective) >= len(objectiveNames):
		problem = r.Objective.String()
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRequest, problem)
}

// search solves the request on the graph, in whole numbers so that equal sums compare as equal.
func (t *Topology) search(from, to PortRef, r Request, v *searchView) (Answer, error) {
	p, bounded := v.problem(t, r)
	p.From, p.To = t.index[from.Switch], t.index[to.Switch]
	p.Limit.Time = r.Limit
	if r.Limit == 0 {
		p.Limit.Time = DefaultLimit
	}
	s, err := t.g.Solve(p)
	if err != nil {
		return Answer{}, v.explain(err, r, bounded)
	}
	a := t.answer(from, to, s.Path, r)
	a.Algorithm, a.Exact, a.Gap = string(s.Algorithm), s.Exact, gap(s, r.Objective == ObjectiveWidest)
	if a.Gap == 0 {
		a.Exact = true
	}
	return a, nil
}

// gap returns how much better the best path may be than the path that was found, as a share of the
// value of the latter or, for widths, of the best path's.
func gap(s graph.Solution, widest bool) float64 {
	switch {
	case s.Exact || s.Value == s.Bound:
		return 0
	case widest:
		return (s.Bound - s.Value) / s.Bound
	}
	whole := math.Ceil(s.Bound * (1 - 1e-12)) // sums of whole numbers are whole
	return max(0, (s.Value-whole)/s.Value)
}

// answer returns the answer with a path, and the width, delay, jitter and loss of the path.
func (t *Topology) answer(from, to PortRef, p graph.Path, r Request) Answer {
	a := Answer{Path: t.path(p, from, to), Width: math.MaxUint64}
	arrive := 1.0
	for _, arc := range p.Arcs {
		l := t.Links[arc]
		a.Width = min(a.Width, r.available(l))
		a.Delay += l.Latency
		a.Jitter += l.Jitter
		arrive *= 1 - l.Loss
		if unmeasured(l) {
			a.Unmeasured++
		}
	}
	a.Loss = 1 - arrive
	return a
}

func (r Request) available(l Link) uint64 {
	if r.Available != nil {
		return r.Available(l)
	}
	return l.Available()
}

// needsWidth reports whether links of unknown capacity are excluded.
func (r Request) needsWidth() bool { return r.MinBandwidth > 0 || r.Objective == ObjectiveWidest }

// unmeasured reports whether a link's delay and jitter have not been measured yet.
func unmeasured(l Link) bool { return l.Latency <= 0 && l.Jitter <= 0 }

// explain translates an error of the graph into the terms of the request.
func (v *searchView) explain(err error, r Request, bounded []metricSum) error {
	var none *graph.NoPathError
	switch {
	case errors.Is(err, graph.ErrUndecided):
		return ErrUndecided
	case !errors.As(err, &none):
		return fmt.Errorf("%w: %w", ErrRequest, err)
	case none.Reason == graph.Disconnected:
		return fmt.Errorf("%w: %s", ErrNoPath, v.disconnected())
	case none.Reason == graph.Together:
		return fmt.Errorf("%w: each bound can be met, but not all of them together", ErrNoPath)
	}
	m := r.Objective.minimised()
	if none.Reason >= 0 {
		m = bounded[none.Reason]
	}
	return fmt.Errorf("%w: the least %v of a path is %s, at most %s was asked for%s",
		ErrNoPath, m, m.format(none.Least), m.format(m.bound(r)), v.leftOut())
}
