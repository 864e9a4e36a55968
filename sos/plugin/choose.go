package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-net/sluice/network"
)

// ErrNoGain says that no two agents lie on the way so that carrying the
// connection between them would help it.
var ErrNoGain = errors.New("no pair of agents would help the connection")

// Candidate is an agent as the choice sees it.
type Candidate struct {
	Name string
	// ToClient and ToServer are path costs from each end; infinite if there is
	// no path.
	ToClient, ToServer float64
	// Sessions counts those it carries or is being asked to carry, Limit is how
	// many it accepts, Throughput what it moves now in bits per second.
	Sessions, Limit int
	Throughput      float64
	// Unfit says why the agent cannot be used (draining, silent, no address of
	// the family, place unknown); empty if it can.
	Unfit string
}

func (c *Candidate) usable() bool {
	return c.Unfit == "" && (c.Limit <= 0 || c.Sessions < c.Limit)
}

// Balance names the load that decides between equally near agents.
type Balance string

// The loads that can decide.
const (
	BalanceSessions   Balance = "sessions"
	BalanceThroughput Balance = "throughput"
)

// Choose returns the indices of the client's and the server's agent: nearest to
// each end, and among equally near ones the least loaded. tolerance says up to
// which difference of cost two agents count as equally near.
func Choose(agents []Candidate, tolerance float64, by Balance) (client, server int, err error) {
	toClient := func(c *Candidate) float64 { return c.ToClient }
	toServer := func(c *Candidate) float64 { return c.ToServer }
	client = nearest(agents, tolerance, by, toClient, -1)
	if client < 0 {
		return 0, 0, unusable(agents, "client")
	}
	server = nearest(agents, tolerance, by, toServer, client)
	if server < 0 {
		return 0, 0, unusable(agents, "server")
	}
	// An agent that is as near to the far end as the other one shortens
	// nothing; with both ends at one site, or only one site's agents left, the
	// connection does better without.
	x, y := &agents[client], &agents[server]
	if !clearlyLess(y.ToServer, x.ToServer, tolerance) || !clearlyLess(x.ToClient, y.ToClient, tolerance) {
		return 0, 0, fmt.Errorf("%w: %s and %s are equally near to an end", ErrNoGain, x.Name, y.Name)
	}
	return client, server, nil
}

func clearlyLess(a, b, tolerance float64) bool { return a+tolerance < b }

func nearest(agents []Candidate, tolerance float64, by Balance, cost func(*Candidate) float64, except int) int {
	least := math.Inf(1)
	for i := range agents {
		if i != except && agents[i].usable() {
			least = min(least, cost(&agents[i]))
		}
	}
	if math.IsInf(least, 1) {
		return -1
	}
	best := -1
	for i := range agents {
		c := &agents[i]
		if i == except || !c.usable() || clearlyLess(least, cost(c), tolerance) {
			continue
		}
		if best < 0 || lighter(c, &agents[best], by) {
			best = i
		}
	}
	return best
}

// lighter orders equally near agents by load.
func lighter(a, b *Candidate, by Balance) bool {
	sessions, throughput := cmp.Compare(a.Sessions, b.Sessions), cmp.Compare(a.Throughput, b.Throughput)
	if by == BalanceThroughput {
		return cmp.Or(throughput, sessions, cmp.Compare(a.Name, b.Name)) < 0
	}
	return cmp.Or(sessions, throughput, cmp.Compare(a.Name, b.Name)) < 0
}

// unusable explains why no agent was found for an end.
func unusable(agents []Candidate, end string) error {
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
	if len(agents) == 0 {
		return fmt.Errorf("%w: %w: none is known; add agents", ErrNoGain, errNoAgent)
	}
	if len(why) == 0 {
		return fmt.Errorf("%w: %w: none left for the %s", ErrNoGain, errNoAgent, end)
	}
	return fmt.Errorf("%w: %w: none left for the %s: %v", ErrNoGain, errNoAgent, end, why)
}

// Tolerances by metric: measured latencies scatter by what a busy switch needs
// to answer a probe; hops are exact; the others are ratios.
func tolerance(m network.Metric, latency float64) float64 {
	switch m {
	case network.MetricLatency:
		return latency
	case network.MetricHops:
		return 0.5
	default:
		return 1e-6
	}
}
