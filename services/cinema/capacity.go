package cinema

import (
	"fmt"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
)

// portPercent is the share of a gateway's own port that channels may take, in percent. The rest
// is for headers, bursts, and the gateway's other traffic.
const portPercent = 90

// portCapacity holds the bit rate that channels may take of a port at which gateways are attached.
// The zero value stands for a port that is not known, which always has room.
type portCapacity struct {
	at network.PortRef
	// most is in bit/s; zero means that the port's capacity is not known.
	most uint64
	// gateways names the gateways that are attached to the port: only ingress gateways, or only
	// egress gateways.
	gateways []string
}

// check returns an error if the port has no room for an additional bit rate. taken is the bit rate that
// channels take of the port already. Both are in bit/s.
func (r *portCapacity) check(taken, rate uint64) error {
	if r.most == 0 || taken+rate <= r.most {
		return nil
	}
	return &noRoomError{r.at, rate, r.most - min(r.most, taken), r.most}
}

// noRoomError names the port of a gateway that lacks room for a channel.
type noRoomError struct {
	at network.PortRef
	// rate is the requested bit rate, left the bit rate that channels may still take of the port,
	// and all the bit rate that they may take together, in bit/s.
	rate, left, all uint64
}

// Error implements error.
func (e *noRoomError) Error() string {
	return fmt.Sprintf("port %v: %s wanted, %s of the %s for channels are left",
		e.at, units.FormatRate(float64(e.rate)), units.FormatRate(float64(e.left)), units.FormatRate(float64(e.all)))
}

// capacityAt returns what channels may take of the port at which a gateway is attached. all lists the
// gateways of the same kind, several of which may be attached to that port.
func capacityAt[C any](c *core, of *agents.Agent[C], all []*agents.Agent[C]) (r portCapacity) {
	at := func(a *agents.Agent[C]) network.PortRef {
		st := a.State()
		p, _, _ := c.place(&st) // the zero value if the gateway has not been located
		return p.At
	}
	r.at = at(of)
	if r.at.IsZero() {
		return r
	}
	r.most = c.Network.Capacity(r.at) / 100 * portPercent
	for _, other := range all {
		if at(other) == r.at {
			r.gateways = append(r.gateways, other.Name)
		}
	}
	return r
}

// rate returns the declared bit rate of a channel in bit/s, or zero if there is no such
// channel.
func (c *core) rate(channel string) uint64 {
	x, _ := c.Channels.Item(channel)
	return uint64(x.Value.BitRate)
}
