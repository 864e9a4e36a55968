package agents

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// ErrNone reports that no agent can be used.
var ErrNone = errors.New("no agent can be used")

// Candidate describes an agent for a choice.
type Candidate struct {
	Name string
	// Costs holds the cost of the path to each end for which agents are wanted. It is infinite if
	// there is no path.
	Costs []float64
	// Sessions counts the sessions that the agent carries or is being asked to carry, Limit is the
	// number that it accepts, and Throughput its present throughput in bits per second.
	Sessions, Limit int
	Throughput      float64
	// Unfit is the reason why the agent cannot be used (draining, silent, no address of the family,
	// place unknown), or "" if it can.
	Unfit string
}

func (c *Candidate) usable() bool {
	return c.Unfit == "" && (c.Limit <= 0 || c.Sessions < c.Limit)
}

// Balance is the kind of load that decides between equally near agents.
type Balance string

// The kinds of load.
const (
	BalanceSessions   Balance = "sessions"
	BalanceThroughput Balance = "throughput"
)

// Nearest returns the index of the agent that is nearest to one of the ends, and among equally near
// ones the index of the least loaded. Two agents are equally near if their costs differ by at most
// tolerance. Agents whose indices are in exclude are not considered.
func Nearest(agents []Candidate, end int, tolerance float64, by Balance, exclude ...int) (int, error) {
	best, least := -1, math.Inf(1)
	usable := func(i int) bool { return !slices.Contains(exclude, i) && agents[i].usable() }
	for i := range agents {
		if usable(i) {
			least = min(least, agents[i].Costs[end])
		}
	}
	for i := range agents {
		c := &agents[i]
		if math.IsInf(least, 1) || !usable(i) || least+tolerance < c.Costs[end] {
			continue
		}
		if best < 0 || lessLoaded(c, &agents[best], by) {
			best = i
		}
	}
	if best < 0 {
		return 0, noneError(agents)
	}
	return best, nil
}

// lessLoaded reports whether agent a is less loaded than agent b. The name decides between equal
// loads.
func lessLoaded(a, b *Candidate, by Balance) bool {
	sessions, throughput := cmp.Compare(a.Sessions, b.Sessions), cmp.Compare(a.Throughput, b.Throughput)
	if by == BalanceThroughput {
		return cmp.Or(throughput, sessions, cmp.Compare(a.Name, b.Name)) < 0
	}
	return cmp.Or(sessions, throughput, cmp.Compare(a.Name, b.Name)) < 0
}

// noneError returns an ErrNone that says why no agent can be used.
func noneError(agents []Candidate) error {
	var why []string
	for i := range agents {
		c := &agents[i]
		switch {
		case c.Unfit != "":
			why = append(why, c.Name+" "+c.Unfit)
		case !c.usable():
			why = append(why, fmt.Sprintf("%s is full (%d sessions)", c.Name, c.Sessions))
		}
	}
	slices.Sort(why)
	switch {
	case len(agents) == 0:
		return fmt.Errorf("%w: none is known; add agents", ErrNone)
	case len(why) == 0:
		return fmt.Errorf("%w: none is left", ErrNone)
	}
	return fmt.Errorf("%w: %v", ErrNone, why)
}

// Tolerance returns the difference of path costs below which agents are equally near. Measured
// latencies, in seconds, scatter by the time that a busy switch needs to answer a probe, which is
// the argument latency. Hops are exact, and the other metrics are ratios.
func Tolerance(m network.Metric, latency float64) float64 {
	switch m {
	case network.MetricLatency:
		return latency
	case network.MetricHops:
		return 0.5
	default:
		return 1e-6
	}
}

// Candidates describes the agents, so that one can be chosen for connections of an address family.
// Each of ends returns the cost of the path from one end of the connection to a port. Agents in
// refused are unfit. The second result lists the agents in the same order. The functions in ends
// are called with a lock held, and must not call the registry.
func (r *Registry[C, R, L]) Candidates(family netip.Addr, refused map[*Agent[C]]bool, ends ...func(network.PortRef) float64) ([]Candidate, []*Agent[C]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Candidate, 0, len(r.list))
	for _, a := range r.list {
		s := &a.state
		c := Candidate{
			Name: a.Name, Costs: make([]float64, len(ends)), Sessions: s.Sessions, Limit: s.Limit(),
			Throughput: s.Status.BitsPerSecondIn + s.Status.BitsPerSecondOut, Unfit: s.Unfit(family),
		}
		if refused[a] {
			c.Unfit = "has just refused a session"
		}
		addr, _ := s.Addr(family)
		for i, cost := range ends {
			if c.Unfit == "" {
				c.Costs[i] = cost(s.Places[addr].At)
			}
		}
		list = append(list, c)
	}
	return list, r.list
}

// Costs caches the costs of paths until the network changes, so that many connections at once do
// not search for the same paths. It is safe for concurrent use.
type Costs struct {
	mu      sync.Mutex
	version uint64
	metric  network.Metric
	known   map[[2]openflow.DatapathID]float64
}

// From returns a function that returns the cost of the best path from a port to another one, or
// infinity if there is none.
func (c *Costs) From(top *network.Topology, from network.PortRef, m network.Metric) func(network.PortRef) float64 {
	return func(to network.PortRef) float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.known == nil || c.version != top.Version || c.metric != m {
			c.version, c.metric, c.known = top.Version, m, map[[2]openflow.DatapathID]float64{}
		}
		key := [2]openflow.DatapathID{from.Switch, to.Switch}
		cost, ok := c.known[key]
		if !ok {
			cost = math.Inf(1)
			if p, found := top.Path(from, to, m); found {
				cost = p.Cost
			}
			c.known[key] = cost
		}
		return cost
	}
}
