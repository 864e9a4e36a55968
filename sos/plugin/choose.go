package plugin

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/service/agents"
)

// ErrNoGain says that no two agents lie on the way so that carrying the
// connection between them would help it.
var ErrNoGain = errors.New("no pair of agents would help the connection")

// Choose returns the indices of the client's and the server's agent, of candidates whose
// costs are to client and server: nearest to each end, and among equally near ones the least
// loaded. tolerance says up to which difference of cost two agents count as equally near.
func Choose(list []agents.Candidate, tolerance float64, by agents.Balance) (client, server int, err error) {
	if client, err = agents.Nearest(list, 0, tolerance, by); err != nil {
		return 0, 0, fmt.Errorf("%w: for the client: %w", ErrNoGain, err)
	}
	if server, err = agents.Nearest(list, 1, tolerance, by, client); err != nil {
		return 0, 0, fmt.Errorf("%w: for the server: %w", ErrNoGain, err)
	}
	// An agent that is as near to the far end as the other one shortens
	// nothing; with both ends at one site, or only one site's agents left, the
	// connection does better without.
	x, y := &list[client], &list[server]
	if y.Costs[1]+tolerance >= x.Costs[1] || x.Costs[0]+tolerance >= y.Costs[0] {
		return 0, 0, fmt.Errorf("%w: %s and %s are equally near to an end", ErrNoGain, x.Name, y.Name)
	}
	return client, server, nil
}
