package policy

import (
	"fmt"
	"time"
)

// Criterion is a criterion by which two usable interfaces are compared.
type Criterion string

// The criteria.
const (
	// Order prefers the interface that comes first in the list.
	Order Criterion = "order"
	// Cost prefers the lower cost.
	Cost Criterion = "cost"
	// Signal prefers the stronger signal, if both have one.
	Signal Criterion = "signal"
	// Loss prefers the interface that loses fewer probes.
	Loss Criterion = "loss"
)

// Rules holds the configured rules: which interfaces are usable, and which of two is better.
type Rules struct {
	// The first criterion by which two interfaces differ decides.
	Criteria  []Criterion `yaml:"criteria" oneof:"order|cost|signal|loss" doc:"By what interfaces are compared, one after the other; the order decides in the end."`
	MinSignal int         `yaml:"min_signal" min:"-120" max:"0" doc:"Signal in dBm below which an interface is left, if there is another. 0: none."`
	MaxLoss   float64     `yaml:"max_loss" min:"0" max:"1" doc:"Share of the latest probes whose loss makes an interface be left, if there is another. 0: none."`
	// The margins apply between interfaces. An interface that is not in use must also be better than
	// MinSignal and MaxLoss by them.
	SignalMargin int           `yaml:"signal_margin" min:"0" max:"50" doc:"By how many dB another signal must be better."`
	LossMargin   float64       `yaml:"loss_margin" min:"0" max:"1" doc:"By what share of probes another loss must be better."`
	Dwell        time.Duration `yaml:"dwell" min:"0s" max:"1h" doc:"How long another interface must have been better."`
	Hold         time.Duration `yaml:"hold" min:"0s" max:"1h" doc:"How long after a move the device stays, unless the interface fails."`
}

// minProbes is how many probes are needed for their loss to be meaningful.
const minProbes = 5

// Candidate is the state of an interface.
type Candidate struct {
	Name string
	// Link reports whether the interface has a link: a carrier and, with a radio, an access point.
	Link bool
	// Signal is in dBm; zero if the interface has no radio or the signal is unknown.
	Signal int
	Loss   float64
	Probes int
	Cost   int
	// Silent reports whether nothing is received on the interface any more although it has a link.
	// Answers reports whether a probe by it was answered since the interface in use has fallen silent.
	Silent, Answers bool
	// Barred is the reason why the interface cannot be used for now; it is empty if the interface
	// can be used. LastResort reports whether it may be used nevertheless if no other can be used.
	Barred     string
	LastResort bool
}

// Choice is the result of a choice.
type Choice struct {
	// Use names the interface; empty if none can be used.
	Use string
	Why string
	// Again is when to choose again even if nothing changes; zero for never.
	Again time.Time
}

// Now is the state that a choice starts from.
type Now struct {
	Time time.Time
	// Current is the interface in use, and Since is when it became that.
	Current string
	Since   time.Time
	// Requested names an interface that a user or the network has asked for. It is used whenever
	// possible.
	Requested string
}

// Selector chooses interfaces. It needs only Rules to be set.
type Selector struct {
	Rules Rules

	challenger string
	since      time.Time
}

// Choose chooses among the candidates, which are in the order of preference.
func (s *Selector) Choose(now Now, candidates []Candidate) Choice {
	var current, requested *Candidate
	for i := range candidates {
		switch c := &candidates[i]; c.Name {
		case now.Current:
			current = c
			if c.Name == now.Requested {
				requested = c
			}
		case now.Requested:
			requested = c
		}
	}
	if requested != nil && requested.Link && requested.Barred == "" && !requested.Silent {
		s.challenger = ""
		return Choice{Use: requested.Name, Why: "asked for"}
	}
	if current == nil || !current.Link || current.Barred != "" {
		s.challenger = ""
		return s.replaceUnusable(current, candidates)
	}
	if current.Silent {
		s.challenger = ""
		return s.replaceSilent(current, candidates)
	}
	if why := s.weak(current, false); why != "" {
		s.challenger = ""
		if best := s.best(candidates, current.Name, true); best != nil {
			return Choice{Use: best.Name, Why: why}
		}
		return Choice{Use: current.Name, Why: why + ", and nothing better"}
	}
	return s.compare(now, current, candidates)
}

// replaceUnusable chooses when the current interface cannot be used at all.
func (s *Selector) replaceUnusable(current *Candidate, candidates []Candidate) Choice {
	why := "the first choice"
	if current != nil {
		why = current.Name + " has no link"
		if current.Link {
			why = current.Name + ": " + current.Barred
		}
	}
	if best := s.anyOf(candidates); best != nil {
		return Choice{Use: best.Name, Why: why}
	}
	return Choice{Why: "no interface has a link"}
}

// replaceSilent chooses when nothing is received on the current interface. It prefers only an interface
// whose probes are answered now. If none is answered, the device itself may have been delayed.
func (s *Selector) replaceSilent(current *Candidate, candidates []Candidate) Choice {
	why := current.Name + " is silent"
	var answering []Candidate
	for _, c := range candidates {
		if c.Answers && c.Name != current.Name {
			answering = append(answering, c)
		}
	}
	if best := s.anyOf(answering); best != nil {
		return Choice{Use: best.Name, Why: why}
	}
	return Choice{Use: current.Name, Why: why + ", and nothing else answers"}
}

// compare looks for a better interface than a usable current one.
func (s *Selector) compare(now Now, current *Candidate, candidates []Candidate) Choice {
	best, why := current, ""
	for i := range candidates {
		c := &candidates[i]
		if c.Name == current.Name || !s.usable(c, true) {
			continue
		}
		if w := s.better(candidates, c, best); w != "" {
			best, why = c, w
		}
	}
	stay := Choice{Use: current.Name, Why: "nothing is better"}
	if best == current {
		s.challenger = ""
		return stay
	}
	if s.challenger != best.Name {
		s.challenger, s.since = best.Name, now.Time
	}
	ready := s.since.Add(s.Rules.Dwell)
	if held := now.Since.Add(s.Rules.Hold); held.After(ready) {
		ready = held
	}
	if now.Time.Before(ready) {
		stay.Why, stay.Again = why+", not for long enough yet", ready
		return stay
	}
	s.challenger = ""
	return Choice{Use: best.Name, Why: why}
}

// anyOf returns the best of the usable interfaces. If there is none, it returns the best of those with a
// link that are not barred, and otherwise the best of the barred ones with LastResort: a weak interface
// is better than none.
func (s *Selector) anyOf(candidates []Candidate) *Candidate {
	for _, usable := range []bool{true, false} {
		if best := s.best(candidates, "", usable); best != nil {
			return best
		}
	}
	var barred []Candidate
	for _, c := range candidates {
		if c.Barred != "" && c.LastResort {
			c.Barred = ""
			barred = append(barred, c)
		}
	}
	return s.best(barred, "", false)
}

// best returns the best interface that has a link, is not barred, and is not named except; nil if there
// is none. If usable is set, the interface must also be usable.
func (s *Selector) best(candidates []Candidate, except string, usable bool) *Candidate {
	var best *Candidate
	for i := range candidates {
		c := &candidates[i]
		if c.Name == except || !c.Link || c.Barred != "" || usable && !s.usable(c, true) {
			continue
		}
		if best == nil || s.better(candidates, c, best) != "" {
			best = c
		}
	}
	return best
}

// usable reports whether an interface can be used.
func (s *Selector) usable(c *Candidate, entering bool) bool {
	return c.Link && !c.Silent && c.Barred == "" && s.weak(c, entering) == ""
}

// weak returns a text that says which bound an interface violates, or an empty string. entering is set
// for an interface that is not in use yet, which must be better than the bounds by the margins.
func (s *Selector) weak(c *Candidate, entering bool) string {
	minSignal, maxLoss := s.Rules.MinSignal, s.Rules.MaxLoss
	if entering {
		minSignal += s.Rules.SignalMargin
		maxLoss = max(maxLoss-s.Rules.LossMargin, 0)
	}
	if s.Rules.MinSignal != 0 && c.Signal != 0 && c.Signal < minSignal {
		return fmt.Sprintf("%s has a signal of %d dBm", c.Name, c.Signal)
	}
	if s.Rules.MaxLoss != 0 && c.Probes >= minProbes && c.Loss > maxLoss {
		return fmt.Sprintf("%s loses %.0f%% of the probes", c.Name, 100*c.Loss)
	}
	return ""
}

// better returns the reason why a is better than b, or an empty string if it is not.
func (s *Selector) better(order []Candidate, a, b *Candidate) string {
	for _, criterion := range s.Rules.Criteria {
		difference, what := 0, ""
		switch criterion {
		case Cost:
			difference, what = b.Cost-a.Cost, "costs less"
		case Signal:
			difference, what = s.signal(a, b), fmt.Sprintf("has %d dB more signal", a.Signal-b.Signal)
		case Loss:
			difference, what = s.loss(a, b), "loses fewer probes"
		case Order:
			return first(order, a, b)
		}
		switch {
		case difference > 0:
			return a.Name + " " + what
		case difference < 0:
			return ""
		}
	}
	return first(order, a, b)
}

// signal compares the signals; the result is positive if a's is better by more than the margin.
func (s *Selector) signal(a, b *Candidate) int {
	if a.Signal == 0 || b.Signal == 0 {
		return 0
	}
	d := a.Signal - b.Signal
	if d < 0 {
		return min(d+s.Rules.SignalMargin, 0)
	}
	return max(d-s.Rules.SignalMargin, 0)
}

// loss compares the losses; the result is positive if a's is better by more than the margin.
func (s *Selector) loss(a, b *Candidate) int {
	if a.Probes < minProbes || b.Probes < minProbes {
		return 0
	}
	switch d := b.Loss - a.Loss; {
	case d > s.Rules.LossMargin:
		return 1
	case d < -s.Rules.LossMargin:
		return -1
	}
	return 0
}

// first returns a reason if a comes before b in the order, or an empty string.
func first(order []Candidate, a, b *Candidate) string {
	for i := range order {
		switch &order[i] {
		case a:
			return a.Name + " comes first"
		case b:
			return ""
		}
	}
	return ""
}
