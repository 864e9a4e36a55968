package critical

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// MaxDefinitions bounds the number of definitions, because each requires rules on every switch.
const MaxDefinitions = 256

// These are limits of a definition.
const (
	maxRate     = units.Rate(1e12)
	minIdle     = time.Second
	maxIdle     = 18 * time.Hour // 16 bits of seconds
	defaultIdle = 30 * time.Second
	// ackShare is the divisor of a flow's rate that gives its promise in the reverse direction, if
	// its definition does not set one: TCP acknowledges every second segment, 66 bytes for 3028.
	ackShare = 32
)

// Spec is a definition of critical traffic as an operator writes it.
type Spec struct {
	Name        string      `json:"name" yaml:"-" doc:"Name of the definition: letters, digits, dots and dashes, at most 63, a letter or digit first." example:"backup"`
	Rate        units.Rate  `json:"rate" yaml:"rate" doc:"Bandwidth that each flow requires, counted as links count it, headers included; at most 1Tbit."`
	ReverseRate *units.Rate `json:"reverse_rate,omitempty" yaml:"reverse_rate" doc:"Bandwidth required in the reverse direction. Not given: a 32nd of rate, for acknowledgements."`
	Match       match.Flow  `json:"match" yaml:"match" doc:"Which packets are critical. Each connection among them, or pair of hosts, is a flow."`
	Once        bool        `json:"once,omitempty" yaml:"once" doc:"Decide when a flow begins, and only then; otherwise one for which there was no room is accepted when there is."`
	IdleTimeout string      `json:"idle_timeout,omitempty" yaml:"idle_timeout" format:"go-duration" doc:"How long a flow is silent before it is over, 1s to 18h. Not given: 30s." example:"30s"`
}

// Definition is a Spec that has been checked. Its JSON is that of the Spec.
type Definition struct {
	Spec

	Reverse uint64           `json:"-"`
	Idle    time.Duration    `json:"-"`
	Matches []openflow.Match `json:"-"`
}

// UnmarshalJSON reads a Spec and checks it.
func (d *Definition) UnmarshalJSON(b []byte) error {
	var spec Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	checked, faults := spec.Parse()
	if checked != nil {
		*d = *checked
	}
	return faults.Err()
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Parse returns the checked definition, or all of its faults.
func (s Spec) Parse() (*Definition, kit.Faults) {
	d := &Definition{Spec: s, Reverse: uint64(s.Rate) / ackShare, Idle: defaultIdle}
	var faults kit.Faults
	faults.Check(namePattern.MatchString(s.Name), "name", s.Name, "letters, digits, dots, dashes, at most 63, a letter or digit first")
	faults.Check(s.Rate >= 1 && s.Rate <= maxRate, "rate", s.Rate, "a rate from 1bit to %v", maxRate)
	if r := s.ReverseRate; r != nil {
		d.Reverse = uint64(*r)
		faults.Check(*r >= 0 && *r <= maxRate, "reverse_rate", *r, "a rate of at most %v", maxRate)
	}
	if s.IdleTimeout != "" {
		var err error
		d.Idle, err = time.ParseDuration(s.IdleTimeout)
		faults.Check(err == nil && d.Idle >= minIdle && d.Idle <= maxIdle && d.Idle%time.Second == 0, "idle_timeout", s.IdleTimeout, "a duration of whole seconds, 1s to 18h")
	}
	matches, more := s.Match.Parse()
	d.Matches = matches
	if faults = append(faults, more.WithPrefix("match")...); len(faults) > 0 {
		return nil, faults
	}
	return d, nil
}

// selects reports whether the definition selects the packet with the given exact match.
func (d *Definition) selects(exact openflow.Match) bool {
	return slices.ContainsFunc(d.Matches, func(m openflow.Match) bool { return m.Covers(exact) })
}
