package route

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

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
