package topology

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Request says what a path must offer and what is to be best about it: any mix of
// constraints with one objective. The zero value asks for the path of fewest hops.
type Request struct {
	// MinBandwidth is what every link must have available, in bits per second;
	// zero asks for nothing.
	MinBandwidth uint64
	// MaxDelay and MaxJitter bound the sums over the path; zero is no bound.
	MaxDelay, MaxJitter time.Duration
	// MaxLoss bounds the share of packets that the path loses, above 0 and below 1;
	// zero is no bound.
	MaxLoss float64
	// Objective chooses among the paths that meet the constraints.
	Objective Objective
	// Available is the capacity that a link has for this request, by which a caller
	// takes off what it has promised to others; nil stands for Link.Available.
	Available func(Link) uint64
	// Exclude gives the reason for which a link may not be used, or "".
	Exclude func(Link) string
	// Limit is the time for a search that may take exponential time, which is one
	// with a bound on what the objective does not make least; zero stands for
	// DefaultLimit. What is not solved exactly by then is answered by relaxation.
	Limit time.Duration
}

// DefaultLimit is what a search gets when the request names no limit.
const DefaultLimit = 100 * time.Millisecond

// Objective is what a path request optimises. Paths that are equal in it are
// compared by their number of hops, and then by the order of links.
type Objective uint8

// The objectives of a request.
const (
	ObjectiveHops   Objective = iota // fewest links
	ObjectiveDelay                   // least delay
	ObjectiveLoss                    // least loss
	ObjectiveJitter                  // least jitter
	ObjectiveWidest                  // most available capacity at the narrowest link
)

// objectiveNames are the objectives in the words of an operator.
var objectiveNames = [...]string{"hops", "delay", "loss", "jitter", "widest"}

// Objectives lists the names that ParseObjective accepts.
func Objectives() []string { return slices.Clone(objectiveNames[:]) }

// String is the name that ParseObjective accepts.
func (o Objective) String() string {
	if int(o) < len(objectiveNames) {
		return objectiveNames[o]
	}
	return fmt.Sprintf("objective(%d)", uint8(o))
}

// ParseObjective reads an objective's name.
func ParseObjective(s string) (Objective, error) {
	if i := slices.Index(objectiveNames[:], s); i >= 0 {
		return Objective(i), nil
	}
	return 0, fmt.Errorf("unknown objective %q: want hops, delay, loss, jitter or widest", s)
}

// Errors of Find. Each is wrapped with the reason.
var (
	// ErrNoPath: no path meets the constraints, which has been proved.
	ErrNoPath = errors.New("no path")
	// ErrUndecided: the limit was reached before a path was found or proved not to exist.
	ErrUndecided = errors.New("no path found within the limit of the search")
	// ErrRequest: the request makes no sense.
	ErrRequest = errors.New("wrong path request")
)

// Answer is the path that Find has chosen, what it offers and how it was found.
type Answer struct {
	Path Path
	// Width is what the narrowest link has available in bits per second: zero if a
	// link's capacity is not known, math.MaxUint64 for a path without links.
	Width uint64
	// Delay and Jitter are sums over the links that have been measured.
	Delay, Jitter time.Duration
	// Loss is the share of packets that the path loses.
	Loss float64
	// Unmeasured counts the path's links whose delay is not known.
	Unmeasured int
	// Algorithm is what found the path, for a reader.
	Algorithm string
	// Exact says that no path is better. If not, the best one is better than this
	// by at most Gap, a share of this path's value of the objective.
	Exact   bool
	Gap     float64
	Elapsed time.Duration
}
