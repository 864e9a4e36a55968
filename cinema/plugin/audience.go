package plugin

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/agents"
)

// audience are the copies of a channel, by switch, and the gateways that cannot get any.
type audience struct {
	copies  map[openflow.DatapathID][]tree.Copy
	behind  map[openflow.DatapathID][]string // gateways
	treated map[openflow.DatapathID][]network.Carried
	refused map[string]error
}

// refuse notes at which switches there is no room.
func (a *audience) refuse(lacking map[openflow.DatapathID]error) {
	for d, why := range lacking {
		for _, gateway := range a.behind[d] {
			a.refused[gateway] = why
		}
		delete(a.copies, d)
		delete(a.treated, d)
	}
}

// audience is who watches a channel that comes in at a place.
func (w *ways) audience(c *Channel, root agents.Place, from netip.AddrPort) audience {
	a := audience{
		map[openflow.DatapathID][]tree.Copy{}, map[openflow.DatapathID][]string{}, map[openflow.DatapathID][]network.Carried{}, map[string]error{},
	}
	ports, had := map[string][]uint16{}, map[watching]bool{}
	for _, x := range w.viewers.watch(c.Name) {
		if !had[x] {
			had[x] = true
			ports[x.gateway] = append(ports[x.gateway], x.port)
		}
	}
	for gateway, list := range ports {
		p, addr, err := w.stands(gateway, root)
		if err != nil {
			a.refused[gateway] = err
			continue
		}
		d := p.At.Switch
		in := uint32(0)
		if d == root.At.Switch {
			in = root.At.Port
		}
		a.behind[d] = append(a.behind[d], gateway)
		treated := w.treatment(from, addr, p)
		if treated.Treatment != "" {
			a.treated[d] = append(a.treated[d], treated)
		}
		queue := w.Treatments.Queue(treated)
		for _, port := range list {
			c := tree.CopyAt(p.At, in, p.MAC, netip.AddrPortFrom(addr, port))
			c.Queue = queue
			a.copies[d] = append(a.copies[d], c)
		}
	}
	return a
}

// stands is where an egress gateway stands, if it can get what comes in at a place.
func (w *ways) stands(gateway string, root agents.Place) (agents.Place, netip.Addr, error) {
	g := w.egress.Get(gateway)
	if g == nil {
		return agents.Place{}, netip.Addr{}, fmt.Errorf("egress gateway %q: %w", gateway, service.ErrUnknown)
	}
	st := g.State()
	p, addr, err := w.place(&st)
	switch {
	case err != nil:
		return p, addr, fmt.Errorf("egress gateway %s %w", gateway, err)
	case p.VLAN != root.VLAN:
		return p, addr, fmt.Errorf("egress gateway %s stands in VLAN %d and the ingress gateway in VLAN %d (0: none): both have to stand in the same", gateway, p.VLAN, root.VLAN)
	case !w.Network.CanSet(p.At.Switch, openflow.FieldIPv4Dst) || !w.Network.CanSet(p.At.Switch, openflow.FieldUDPDst):
		return p, addr, fmt.Errorf("switch %v before egress gateway %s cannot rewrite IPv4 addresses and UDP ports", p.At.Switch, gateway)
	}
	return p, addr, nil
}

// share has the groups of a channel make the copies. Those for whom there is no room are over.
func (l *line) share(copies map[openflow.DatapathID][]tree.Copy) (over map[netip.AddrPort]bool) {
	maps.DeleteFunc(l.groups, func(d openflow.DatapathID, _ *tree.Groups) bool { return len(copies[d]) == 0 })
	for d, list := range copies {
		if l.groups[d] == nil {
			l.groups[d] = &tree.Groups{}
		}
		for _, c := range l.groups[d].Set(list) {
			if over == nil {
				over = map[netip.AddrPort]bool{}
			}
			over[c.To] = true
		}
	}
	return over
}

// refusedTo says why a channel does not get to a viewer's port of a gateway, or nil.
func (w *ways) refusedTo(channel string, to watching) error {
	g := w.egress.Get(to.gateway)
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[channel]
	if l == nil {
		return nil
	}
	if err := l.refused[to.gateway]; err != nil {
		return err
	}
	if g == nil {
		return nil
	}
	st := g.State()
	if addr, _ := st.Addr(w.Media); l.over[netip.AddrPortFrom(addr, to.port)] {
		return fmt.Errorf("there are %d viewers of it behind one switch, as many as may be", tree.MaxCopies)
	}
	return nil
}

// troubles says who does not get a channel, and why.
func (w *ways) troubles(channel string) (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[channel]
	if l == nil {
		return nil
	}
	for _, gateway := range slices.Sorted(maps.Keys(l.refused)) {
		lines = append(lines, fmt.Sprintf("viewers of gateway %s do not get it: %v", gateway, l.refused[gateway]))
	}
	if len(l.over) > 0 {
		lines = append(lines, fmt.Sprintf("%d viewers do not get it: there are as many behind one switch as may be, %d", len(l.over), tree.MaxCopies))
	}
	return lines
}
