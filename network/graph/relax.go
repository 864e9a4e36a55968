package graph

// larac is Lagrange relaxation for one bound (Jüttner, Szviatovski, Mécs and Rajkó, "Lagrange
// Relaxation Based Method for the QoS Routing Problem", INFOCOM 2001). The bound is removed and
// its sum, times a multiplier, added to the cost. larac begins with a cheap path that is too long
// and a path within the bound that is too expensive. The multiplier with which both cost the same
// gives the next path, which replaces one of the two, until no path is better than both. The
// cost of the last path with the multiplier, less the bound times the multiplier, is a lower bound
// on the cost of a path that meets the bound.
func (s *solver) larac(cheap Path) {
	b := s.p.Bounds[0]
	short := s.pathFrom(s.remaining[0], s.p.From)
	s.offer(short)
	for rounds := 0; rounds < 64 && !expired(s.deadline); rounds++ {
		excess := sum(b.Weights, cheap.Arcs) - sum(b.Weights, short)
		multiplier := (sum(s.p.Cost, short) - sum(s.p.Cost, cheap.Arcs)) / excess
		p, ok := s.relax([MaxBounds]float64{multiplier})
		if !ok {
			return
		}
		if equal := sum(s.p.Cost, cheap.Arcs) + multiplier*sum(b.Weights, cheap.Arcs); within(equal, p.Cost) {
			return
		}
		if s.offer(p.Arcs) {
			short = p.Arcs
		} else {
			cheap = p
		}
	}
}

// subgradient is Lagrange relaxation for several bounds (Held, Wolfe and Crowder, "Validation of
// Subgradient Optimization", Mathematical Programming 6, 1974): each round raises the
// multipliers of the bounds that the relaxed path exceeds and lowers those of the others, by
// Polyak's step. Sums are taken as shares of their bounds. Every path found in a round that
// meets all bounds is a candidate.
func (s *solver) subgradient(cheap Path) {
	for i := range s.p.Bounds {
		s.offer(s.pathFrom(s.remaining[i], s.p.From))
	}
	var multipliers [MaxBounds]float64
	p := cheap
	for round := range 50 {
		target := 1.5*s.gap.low + 1
		if s.gap.found {
			target = s.gap.best.Cost
		}
		over, norm := s.p.excess(p.Arcs)
		if norm == 0 || target <= s.gap.low || expired(s.deadline) {
			return
		}
		step := (target - s.gap.low) / norm / (1 + float64(round)/10)
		for i := range s.p.Bounds {
			multipliers[i] = max(0, multipliers[i]+step*over[i])
		}
		scaled := multipliers
		for i, b := range s.p.Bounds {
			scaled[i] /= max(b.Max, tiny)
		}
		next, ok := s.relax(scaled)
		if !ok {
			return
		}
		p = next
		s.offer(p.Arcs)
	}
}

// tiny is the divisor that replaces a bound of zero.
const tiny = 1e-9

// excess returns the relative excess over each bound, and the sum of its squares.
func (p *Problem) excess(arcs []int) (over [MaxBounds]float64, norm float64) {
	for i, b := range p.Bounds {
		over[i] = (sum(b.Weights, arcs) - b.Max) / max(b.Max, tiny)
		norm += over[i] * over[i]
	}
	return over, norm
}

// relax finds the path with the least mixed cost: the cost plus, for each bound, the sum times its
// multiplier. The mixed cost, less the bounds times their multipliers, is a lower bound on the
// cost of any path that meets the bounds. The multipliers with the greatest lower bound are kept
// for the guide.
func (s *solver) relax(multipliers [MaxBounds]float64) (Path, bool) {
	p, err := s.shortest(s.mix(&multipliers))
	if err != nil { // the multipliers have overflowed
		return Path{}, false
	}
	allowed := 0.0
	for i, b := range s.p.Bounds {
		allowed += multipliers[i] * b.Max
	}
	if least := p.Cost - allowed - slack*(p.Cost+allowed); least > s.guide.provedCost {
		s.gap.low = max(s.gap.low, least)
		s.guide.provedCost, s.guide.multipliers, s.guide.allowed = least, multipliers, allowed
	}
	return p, true
}

// mix returns the cost plus the bounds' weights times their multipliers.
func (s *solver) mix(multipliers *[MaxBounds]float64) Weights {
	s.mixed = append(s.mixed[:0], s.p.Cost...)
	for i, b := range s.p.Bounds {
		m := multipliers[i]
		for arc, w := range b.Weights {
			s.mixed[arc] += m * w
		}
	}
	return s.mixed
}
