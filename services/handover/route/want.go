package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"weak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Errors of NewPlan.
var (
	// ErrInvalid means that the Want is not valid, for example because a place is on a link between
	// switches.
	ErrInvalid = errors.New("invalid route")
	// ErrUnreachable means that there is no path between a place and any border at the moment.
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

// Want describes how one device should be served.
type Want struct {
	IP netip.Addr
	// Home is the MAC address that everybody beyond the edge sees.
	Home openflow.MAC
	// Borders are the ports where packets to the device may enter and packets from it may leave. A
	// border that is also a place is left out.
	Borders []Border
	// Egress is the border by which packets from the device leave. If it is nil the nearest uplink
	// is used or, if none is reachable, the nearest neighbour.
	Egress *network.PortRef
	// Places are the places where the device is served, one or two. A second place makes the plan a
	// bicast: the first place is served as if it were alone, and a copy of every packet goes to the
	// second.
	Places []Place
}

// Plan holds the rules that serve a device, with their paths.
type Plan struct {
	// Program holds the rules, for the ledger.
	Program network.Program
	// Path leads from the egress border to the first place, and Up from the first place to the
	// egress border.
	Path, Up []network.Hop
	// Egress is the border by which packets from the first place leave.
	Egress Border
	// Join is the switch of a bicast that sends the copies. Branch is their path: it begins at the
	// join and ends at the second place.
	Join   openflow.DatapathID
	Branch []network.Hop
	// Fallback is the reason why a requested bicast is not possible; empty if it is possible or was
	// not requested. With a fallback the plan serves the first place alone.
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

// Want returns the Want that the plan was made for.
func (p *Plan) Want() Want { return p.want }

// Step is one change of the rules. The caller applies it by
//
//	owner.Apply(ctx, key, step.Plan.Program, network.ApplyOptions{Atomic: true, Waves: step.Waves})
//
// which writes the switches wave after wave, and deletes rules after the last wave.
type Step struct {
	Plan  Plan
	Waves [][]openflow.DatapathID
	// Settle asks the caller to wait for a moment before the next step: a switch may confirm the
	// rules of this step before it has forwarded the last packet by the old rules.
	Settle bool
}

// Change describes what a move from one plan to another changes.
type Change struct {
	// Join is the last switch that the old and the new path have in common before they part, seen
	// from the egress border; zero if they have none in common.
	Join openflow.DatapathID
	// Branch is the part of the new path from the join to the new place, and Gone the part of the
	// old path from the join to the old place.
	Branch, Gone []network.Hop
	// Written are the switches that get or change a rule, and Cleared those that only lose rules.
	Written, Cleared []openflow.DatapathID
}

// check validates the Want and normalises it: IPv4 addresses, no place or border twice, no border
// that is a place.
func (w *Want) check(t *network.Topology) error {
	w.IP = w.IP.Unmap()
	switch {
	case !w.IP.Is4() || w.IP.IsUnspecified() || w.IP.IsMulticast():
		return fmt.Errorf("%w: %v is no IPv4 address of a device", ErrInvalid, w.IP)
	case w.Home.IsZero() || w.Home.IsMulticast():
		return fmt.Errorf("%w: home address %v", ErrInvalid, w.Home)
	case len(w.Places) == 0 || len(w.Places) > 2:
		return fmt.Errorf("%w: %d places, not 1 or 2", ErrInvalid, len(w.Places))
	}
	for _, p := range w.Places {
		switch {
		case p.MAC.IsMulticast():
			return fmt.Errorf("%w: address %v at %v", ErrInvalid, p.MAC, p.At)
		case p.At.Port == 0 || p.At.Port > openflow.PortMax:
			return fmt.Errorf("%w: %v is no port for a device", ErrInvalid, p.At)
		case !t.IsEdge(p.At):
			return fmt.Errorf("%w: %v leads to another switch", ErrInvalid, p.At)
		}
	}
	w.Places = slices.Clone(w.Places)
	if len(w.Places) == 2 && w.Places[0] == w.Places[1] {
		w.Places = w.Places[:1]
	}
	return w.checkBorders()
}

// checkBorders validates and normalises the borders.
func (w *Want) checkBorders() error {
	borders := make([]Border, 0, len(w.Borders))
	for _, r := range w.Borders {
		known := slices.ContainsFunc(borders, func(o Border) bool { return o.At == r.At })
		place := slices.ContainsFunc(w.Places, func(p Place) bool { return p.At == r.At })
		if !known && !place {
			borders = append(borders, r)
		}
	}
	w.Borders = borders
	if len(borders) == 0 {
		return fmt.Errorf("%w: no border besides the places themselves", ErrInvalid)
	}
	if w.Egress == nil {
		return nil
	}
	if !slices.ContainsFunc(borders, func(r Border) bool { return r.At == *w.Egress }) {
		return fmt.Errorf("%w: the egress %v is none of the borders", ErrInvalid, *w.Egress)
	}
	return nil
}

// reachable returns the borders with a path to the place, the nearest first, and those without
// one.
func (w *Want) reachable(t *network.Topology, p Place) (near, unreached []Border) {
	type reached struct {
		border Border
		hops   int
	}
	all := make([]reached, 0, len(w.Borders))
	for _, r := range w.Borders {
		hops, ok := t.Distance(r.At.Switch, p.At.Switch)
		if !ok || !t.IsEdge(r.At) {
			unreached = append(unreached, r)
			continue
		}
		all = append(all, reached{r, hops})
	}
	slices.SortStableFunc(all, func(a, b reached) int { return a.hops - b.hops })
	near = make([]Border, len(all))
	for i, r := range all {
		near[i] = r.border
	}
	return near, unreached
}

// egress returns the border by which packets from the place leave, and their path. It is the
// requested egress, or else the nearest uplink or, if there is none, the nearest neighbour.
func (w *Want) egress(t *network.Topology, p Place, near []Border) (Border, []network.Hop, bool) {
	for _, neighbours := range []bool{false, true} {
		for _, r := range near {
			if w.Egress != nil && r.At != *w.Egress || neighbours != (r.Peer != "") {
				continue
			}
			if up, ok := upPath(t, r.At, p.At); ok {
				return r, up, true
			}
		}
	}
	return Border{}, nil, false
}

// upPath returns the path from a place to a border. It is the reverse of the path down or, where a
// link has one direction only, the shortest path.
func upPath(t *network.Topology, border, place network.PortRef) ([]network.Hop, bool) {
	down, ok := t.FanPath(border, place)
	if !ok {
		return nil, false
	}
	up := make([]network.Hop, len(down.Hops))
	for i, h := range down.Hops {
		up[len(up)-1-i] = network.Hop{Switch: h.Switch, In: h.Out, Out: h.In}
	}
	for i, h := range up[:len(up)-1] {
		next := network.PortRef{Switch: up[i+1].Switch, Port: up[i+1].In}
		if l, ok := t.LinkFrom(network.PortRef{Switch: h.Switch, Port: h.Out}); !ok || l.To != next {
			p, ok := t.Path(place, border, network.MetricHops)
			return p.Hops, ok
		}
	}
	return up, true
}
