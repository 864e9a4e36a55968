package bandwidth

import (
	"fmt"
	"regexp"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
)

// Bounds of a definition.
const (
	maxRate     = units.Rate(1e12)
	minIdle     = time.Second
	maxIdle     = 18 * time.Hour // 16 bits of seconds
	defaultIdle = 30 * time.Second
	// ackShare is the part of its rate that a flow is promised in the reverse
	// direction if its definition does not say: TCP acknowledges every second
	// segment, 66 bytes for 3028.
	ackShare = 32
)

// Spec is a definition of critical traffic as an operator writes it.
type Spec struct {
	Name        string      `json:"name" doc:"Name of the definition: letters, digits, dots and dashes, at most 63, a letter or digit first" example:"backup"`
	Rate        units.Rate  `json:"rate" doc:"Bandwidth that each flow requires, counted as links count it, headers included; at most 1Tbit"`
	ReverseRate *units.Rate `json:"reverse_rate,omitempty" doc:"Bandwidth required in the reverse direction; a 32nd of rate, if left out, for acknowledgements"`
	Match       match.Flow  `json:"match" doc:"Which packets are critical. Each connection among them, or pair of hosts, is a flow"`
	Once        bool        `json:"once,omitempty" doc:"Decide when a flow begins, and only then; otherwise one for which there was no room is accepted when there is"`
	IdleTimeout string      `json:"idle_timeout,omitempty" format:"go-duration" doc:"How long a flow is silent before it is over, 1s to 18h; 30s, if left out" example:"30s"`
}

// Definition is a Spec that has been checked.
type Definition struct {
	Spec
	// Configured says that it stands in the configuration.
	Configured bool

	Reverse uint64
	Idle    time.Duration
	Matches []openflow.Match
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Parse checks a definition, or says everything that is wrong with it.
func (s Spec) Parse() (*Definition, []match.Fault) {
	d := &Definition{Spec: s, Reverse: uint64(s.Rate) / ackShare, Idle: defaultIdle}
	var faults []match.Fault
	fail := func(field string, value any, want string) {
		faults = append(faults, match.Fault{Field: field, Value: value, Want: want})
	}
	if !namePattern.MatchString(s.Name) {
		fail("name", s.Name, "letters, digits, dots, dashes, at most 63, a letter or digit first")
	}
	if s.Rate < 1 || s.Rate > maxRate {
		fail("rate", s.Rate, fmt.Sprintf("a rate from 1bit to %v", maxRate))
	}
	if r := s.ReverseRate; r != nil {
		if d.Reverse = uint64(*r); *r < 0 || *r > maxRate {
			fail("reverse_rate", *r, fmt.Sprintf("a rate of at most %v", maxRate))
		}
	}
	if s.IdleTimeout != "" {
		var err error
		if d.Idle, err = time.ParseDuration(s.IdleTimeout); err != nil || d.Idle < minIdle || d.Idle > maxIdle || d.Idle%time.Second != 0 {
			fail("idle_timeout", s.IdleTimeout, "a duration of whole seconds, 1s to 18h")
		}
	}
	matches, more := s.Match.Parse()
	for _, f := range more {
		if f.Field = "match." + f.Field; f.Field == "match." {
			f.Field = "match"
		}
		faults = append(faults, f)
	}
	d.Matches = matches
	if len(faults) > 0 {
		return nil, faults
	}
	return d, nil
}

// selects reports whether the packet is of this traffic.
func (d *Definition) selects(exact openflow.Match) bool {
	for _, m := range d.Matches {
		if m.Covers(exact) {
			return true
		}
	}
	return false
}
