package cinema

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// audience holds the copies of a channel by switch, and the gateways that cannot get any.
type audience struct {
	copies   map[openflow.DatapathID][]tree.Copy
	gateways map[openflow.DatapathID][]string // names of the egress gateways at each switch
	carried  map[openflow.DatapathID][]network.Carried
	refused  map[string]error
}

// refuse removes the copies at switches that the tree could not reach, and records the reason
// for their gateways.
func (a *audience) refuse(lacking map[openflow.DatapathID]error) {
	for d, why := range lacking {
		for _, gateway := range a.gateways[d] {
			a.refused[gateway] = why
		}
		delete(a.copies, d)
		delete(a.carried, d)
	}
}

// audience returns who watches a channel that enters the network at root.
func (tm *treeManager) audience(c *Channel, root agents.Place, from netip.AddrPort) audience {
	a := audience{
		map[openflow.DatapathID][]tree.Copy{}, map[openflow.DatapathID][]string{}, map[openflow.DatapathID][]network.Carried{}, map[string]error{},
	}
	ports, had := map[string][]uint16{}, map[endpoint]bool{}
	for _, x := range tm.viewers.endpoints(c.Name) {
		if !had[x] {
			had[x] = true
			ports[x.gateway] = append(ports[x.gateway], x.port)
		}
	}
	for gateway, list := range ports {
		p, addr, err := tm.locateEgress(gateway, root)
		if err != nil {
			a.refused[gateway] = err
			continue
		}
		d := p.At.Switch
		in := uint32(0)
		if d == root.At.Switch {
			in = root.At.Port
		}
		a.gateways[d] = append(a.gateways[d], gateway)
		treated := tm.treatment(from, addr, p)
		if treated.Treatment != "" {
			a.carried[d] = append(a.carried[d], treated)
		}
		queue := tm.Treatments.Queue(treated)
		for _, port := range list {
			c := tree.CopyAt(p.At, in, p.MAC, netip.AddrPortFrom(addr, port))
			c.Queue = queue
			a.copies[d] = append(a.copies[d], c)
		}
	}
	return a
}

// locateEgress returns the place and data address of an egress gateway, or an error if it
// cannot get a channel that enters the network at root.
func (tm *treeManager) locateEgress(gateway string, root agents.Place) (agents.Place, netip.Addr, error) {
	g := tm.egress.Get(gateway)
	if g == nil {
		return agents.Place{}, netip.Addr{}, fmt.Errorf("egress gateway %q: %w", gateway, kit.ErrUnknown)
	}
	st := g.State()
	p, addr, err := tm.place(&st)
	switch {
	case err != nil:
		return p, addr, fmt.Errorf("egress gateway %s %w", gateway, err)
	case p.VLAN != root.VLAN:
		return p, addr, fmt.Errorf("egress gateway %s stands in VLAN %d and the ingress gateway in VLAN %d (0: none): both have to stand in the same", gateway, p.VLAN, root.VLAN)
	case !tm.Network.CanSet(p.At.Switch, openflow.FieldIPv4Dst) || !tm.Network.CanSet(p.At.Switch, openflow.FieldUDPDst):
		return p, addr, fmt.Errorf("switch %v before egress gateway %s cannot rewrite IPv4 addresses and UDP ports", p.At.Switch, gateway)
	}
	return p, addr, nil
}

// setCopies makes the channel's groups hold the given copies. It returns the destinations for
// which the groups have no room.
func (cs *channelState) setCopies(copies map[openflow.DatapathID][]tree.Copy) (overflow map[netip.AddrPort]bool) {
	maps.DeleteFunc(cs.groups, func(d openflow.DatapathID, _ *tree.Groups) bool { return len(copies[d]) == 0 })
	for d, list := range copies {
		if cs.groups[d] == nil {
			cs.groups[d] = &tree.Groups{}
		}
		for _, c := range cs.groups[d].Set(list) {
			if overflow == nil {
				overflow = map[netip.AddrPort]bool{}
			}
			overflow[c.To] = true
		}
	}
	return overflow
}

// refusalFor returns why a channel does not reach a viewer's port of a gateway, or nil.
func (tm *treeManager) refusalFor(channel string, to endpoint) error {
	g := tm.egress.Get(to.gateway)
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.states[channel]
	if cs == nil {
		return nil
	}
	if err := cs.refused[to.gateway]; err != nil {
		return err
	}
	if g == nil {
		return nil
	}
	st := g.State()
	if addr, _ := st.Addr(tm.Media); cs.overflow[netip.AddrPortFrom(addr, to.port)] {
		return fmt.Errorf("there are %d viewers of it behind one switch, as many as may be", tree.MaxCopies)
	}
	return nil
}

// problems lists who does not get a channel, and why.
func (tm *treeManager) problems(channel string) (lines []string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.states[channel]
	if cs == nil {
		return nil
	}
	for _, gateway := range slices.Sorted(maps.Keys(cs.refused)) {
		lines = append(lines, fmt.Sprintf("viewers of gateway %s do not get it: %v", gateway, cs.refused[gateway]))
	}
	if len(cs.overflow) > 0 {
		lines = append(lines, fmt.Sprintf("%d viewers do not get it: there are as many behind one switch as may be, %d", len(cs.overflow), tree.MaxCopies))
	}
	return lines
}
