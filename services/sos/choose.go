package sos

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/kit/agents"
)

// ErrNoGain means that no pair of agents lies between the ends in such a way that carrying
// the connection would improve it.
var ErrNoGain = errors.New("no pair of agents would help the connection")

// Choose returns the indices of the client's and the server's agent among the candidates,
// whose costs are those to the client and to the server. It takes the agent nearest to each
// end, and of equally near ones the least loaded. Agents count as equally near if their
// costs differ by at most tolerance.
func Choose(list []agents.Candidate, tolerance float64, by agents.Balance) (client, server int, err error) {
	if client, err = agents.Nearest(list, 0, tolerance, by); err != nil {
		return 0, 0, fmt.Errorf("%w: for the client: %w", ErrNoGain, err)
	}
	if server, err = agents.Nearest(list, 1, tolerance, by, client); err != nil {
		return 0, 0, fmt.Errorf("%w: for the server: %w", ErrNoGain, err)
	}
	// An agent that is as near to the far end as the other agent shortens nothing. If both
	// ends are at one site, or if only one site has agents left, the connection performs
	// better without them.
	x, y := &list[client], &list[server]
	if y.Costs[1]+tolerance >= x.Costs[1] || x.Costs[0]+tolerance >= y.Costs[0] {
		return 0, 0, fmt.Errorf("%w: %s and %s are equally near to an end", ErrNoGain, x.Name, y.Name)
	}
	return client, server, nil
}
