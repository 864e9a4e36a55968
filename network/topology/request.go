package topology

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Request holds the constraints that a path must meet, and the objective that decides among the
// paths which meet them. The zero value asks for the path with the fewest hops.
type Request struct {
	// MinBandwidth is the capacity that every link must have available, in bits per second; zero
	// means no constraint.
	MinBandwidth uint64
	// MaxDelay and MaxJitter bound the sums over the path; zero means no bound.
	MaxDelay, MaxJitter time.Duration
	// MaxLoss bounds the share of packets that the path loses, above 0 and below 1; zero means
	// no bound.
	MaxLoss float64
	// Objective decides among the paths that meet the constraints.
	Objective Objective
	// Available returns the capacity that a link has available for this request. A caller sets it
	// to subtract the bandwidth that it has reserved for others. Nil means Link.Available.
	Available func(Link) uint64
	// Exclude returns the reason for which a link must not be used, or "".
	Exclude func(Link) string
	// Limit is the time for a search that may take exponential time: one with a bound on a sum
	// that the objective does not minimise. Zero means DefaultLimit. A search that reaches the
	// limit uses relaxation.
	Limit time.Duration
}

// DefaultLimit is the limit of a request that names none.
const DefaultLimit = 100 * time.Millisecond

// Objective is what a path request optimises. Ties are decided by the number of hops, and then
// by the order of links.
type Objective uint8

// The objectives of a request.
const (
	ObjectiveHops   Objective = iota // fewest links
	ObjectiveDelay                   // least delay
	ObjectiveLoss                    // least loss
	ObjectiveJitter                  // least jitter
	ObjectiveWidest                  // most available capacity at the narrowest link
)

// objectiveNames holds the names of the objectives in the CLI and the API.
var objectiveNames = [...]string{"hops", "delay", "loss", "jitter", "widest"}

// Objectives returns the names that ParseObjective accepts.
func Objectives() []string { return slices.Clone(objectiveNames[:]) }

// String returns the name that ParseObjective accepts.
func (o Objective) String() string {
	if int(o) < len(objectiveNames) {
		return objectiveNames[o]
	}
	return fmt.Sprintf("objective(%d)", uint8(o))
}

// ParseObjective parses an objective's name.
func ParseObjective(s string) (Objective, error) {
	if i := slices.Index(objectiveNames[:], s); i >= 0 {
		return Objective(i), nil
	}
	return 0, fmt.Errorf("unknown objective %q: want hops, delay, loss, jitter or widest", s)
}

// Errors of Find. Each is wrapped with the reason.
var (
	// ErrNoPath means that no path meets the constraints; this is proved.
	ErrNoPath = errors.New("no path")
	// ErrUndecided means that the limit was reached before a path was found or proved not to
	// exist.
	ErrUndecided = errors.New("no path found within the limit of the search")
	// ErrRequest means that the request is invalid.
	ErrRequest = errors.New("wrong path request")
)

// Answer is the path that Find has chosen, what the path offers, and how it was found.
type Answer struct {
	Path Path
	// Width is the available capacity of the narrowest link, in bits per second: zero if a link's
	// capacity is not known, math.MaxUint64 for a path without links.
	Width uint64
	// Delay and Jitter are sums over the links that have been measured.
	Delay, Jitter time.Duration
	// Loss is the share of packets that the path loses.
	Loss float64
	// Unmeasured counts the path's links whose delay is not known.
	Unmeasured int
	// Algorithm names the algorithm that found the path, for a reader.
	Algorithm string
	// Exact is true if no path is better. If it is false, the best path is better than this one
	// by at most Gap: a share of this path's value of the objective or, for ObjectiveWidest, of the
	// best path's value.
	Exact   bool
	Gap     float64
	Elapsed time.Duration
}
