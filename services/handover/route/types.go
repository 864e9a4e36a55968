package route

import (
	"errors"
	"net/netip"
	"slices"
	"weak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Errors of NewPlan.
var (
	// ErrInvalid says that the Want is not valid, for example because a place is on a link between
	// switches.
	ErrInvalid = errors.New("invalid route")
	// ErrUnreachable says that there is no path between a place and any border at the moment.
	ErrUnreachable = errors.New("no path between the borders and the device")
)

// Border is a port where the mobility network meets the rest of the world.
type Border struct {
	At network.PortRef
	// Peer names the neighbour domain behind the port, "" for an uplink.
	Peer string
}

// Place is where a device is served: an edge port, or the port to another domain.
type Place struct {
	At network.PortRef
	// MAC is the address that the device uses there. Packets to the device are sent to this
	// address, and only packets from it are accepted. The zero MAC rewrites nothing, as towards
	// another domain.
	MAC openflow.MAC
}

// Want says how one device should be served.
type Want struct {
	IP netip.Addr
	// Home is the MAC address that everybody beyond the edge sees.
	Home openflow.MAC
	// Borders are where packets to the device may enter and packets from it leave. A border that
	// is also a place is left out.
	Borders []Border
	// Egress is the border by which packets from the device leave. If it is nil the nearest uplink
	// is used or, if none is reachable, the nearest neighbour.
	Egress *network.PortRef
	// Places are where the device is. A second place makes the plan a bicast: the first is served
	// as if it were alone, and a copy of every packet goes to the second.
	Places []Place
}

// Plan holds the rules that serve a device, with their paths.
type Plan struct {
	// Program holds the rules, for the ledger.
	Program network.Program
	// Path leads from the egress border to the first place, Up from the first place to the egress
	// border.
	Path, Up []network.Hop
	// Egress is the border by which packets from the first place leave.
	Egress Border
	// Join is the switch of a bicast that sends the copies. Branch is their path: it begins at the
	// join and ends at the second place.
	Join   openflow.DatapathID
	Branch []network.Hop
	// Fallback says why a requested bicast is not possible. The plan then serves the first place
	// alone.
	Fallback string
	// Unreached are the borders without a path to the device at the moment.
	Unreached []Border

	want    Want
	entries []entry
	order   []openflow.DatapathID // switches, those nearest to the device first
	// top is the topology that the plan was made for. A plan lives longer than a topology, and
	// must not keep it in memory.
	top weak.Pointer[network.Topology]
}

// Bicast reports whether the plan serves two places.
func (p *Plan) Bicast() bool { return len(p.Branch) > 0 }

// PathTo returns the path from the egress border to a place that the plan serves.
func (p *Plan) PathTo(to network.PortRef) []network.Hop {
	if !p.Bicast() || p.want.Places[1].At != to {
		return p.Path
	}
	i := slices.IndexFunc(p.Path, func(h network.Hop) bool { return h.Switch == p.Join })
	return slices.Concat(p.Path[:i], p.Branch)
}

// Want returns what the plan was made for.
func (p *Plan) Want() Want { return p.want }

// Step is one change of the rules. It is brought into the switches by
//
//	owner.Apply(ctx, key, step.Plan.Program, network.ApplyOptions{Atomic: true, Waves: step.Waves})
//
// which writes wave after wave and deletes after the last.
type Step struct {
	Plan  Plan
	Waves [][]openflow.DatapathID
	// Settle asks the caller to wait for a moment before the next step: a switch confirms the
	// rules of this one before the last packet has been forwarded by the old ones.
	Settle bool
}

// Change says what a move from one plan to another changes.
type Change struct {
	// Join is the last switch that the old and the new path have in common before they part, seen
	// from the egress border; zero if they have none in common.
	Join openflow.DatapathID
	// Branch is the part of the new path from the join to the new place, Gone the part of the old
	// path from the join to the old place.
	Branch, Gone []network.Hop
	// Written are the switches that get or change a rule, Cleared those that only lose rules.
	Written, Cleared []openflow.DatapathID
}
