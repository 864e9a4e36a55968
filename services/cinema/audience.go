package cinema

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// audience holds, by switch, the copies of a channel that its viewers need, the egress gateways that
// get them, and the treatments (such as a queue) of their packets. refused holds, by gateway, why a
// gateway cannot get the channel.
type audience struct {
	copies   map[openflow.DatapathID][]tree.Copy
	gateways map[openflow.DatapathID][]string // names of the egress gateways at each switch
	carried  map[openflow.DatapathID][]network.Carried
	refused  map[string]error
}

// without returns the audience without the copies at the switches in lacking, which the channel's
// tree does not reach. lacking holds the reason, which becomes that of each gateway at the switch.
func (a audience) without(lacking map[openflow.DatapathID]error) audience {
	if len(lacking) == 0 {
		return a
	}
	a.copies, a.carried, a.refused = maps.Clone(a.copies), maps.Clone(a.carried), maps.Clone(a.refused)
	for d, why := range lacking {
		for _, gateway := range a.gateways[d] {
			a.refused[gateway] = why
		}
		delete(a.copies, d)
		delete(a.carried, d)
	}
	return a
}

// newAudience returns the audience of a channel that enters the network at root. from is the source
// address of the channel's datagrams.
func newAudience(s *core, v *viewers, e *egressRegistry, c *Channel, root agents.Place, from netip.AddrPort) audience {
	a := audience{
		map[openflow.DatapathID][]tree.Copy{}, map[openflow.DatapathID][]string{}, map[openflow.DatapathID][]network.Carried{}, map[string]error{},
	}
	ports, had := map[string][]uint16{}, map[endpoint]bool{}
	for _, x := range v.endpoints(c.Name) {
		if !had[x] {
			had[x] = true
			ports[x.gateway] = append(ports[x.gateway], x.port)
		}
	}
	for gateway, list := range ports {
		p, addr, err := s.locateEgress(e, gateway, root)
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
		treated := s.treatment(from, addr, p)
		if treated.Treatment != "" {
			a.carried[d] = append(a.carried[d], treated)
		}
		queue := s.Treatments.Queue(treated)
		for _, port := range list {
			c := tree.CopyAt(p.At, in, p.MAC, netip.AddrPortFrom(addr, port))
			c.Queue = queue
			a.copies[d] = append(a.copies[d], c)
		}
	}
	return a
}

// locateEgress returns the place of an egress gateway in the network and its data address, or an
// error if the gateway cannot get a channel that enters the network at root.
func (c *core) locateEgress(e *egressRegistry, gateway string, root agents.Place) (agents.Place, netip.Addr, error) {
	g := e.Get(gateway)
	if g == nil {
		return agents.Place{}, netip.Addr{}, fmt.Errorf("egress gateway %q: %w", gateway, kit.ErrUnknown)
	}
	st := g.State()
	p, addr, err := c.place(&st)
	switch {
	case err != nil:
		return p, addr, fmt.Errorf("egress gateway %s %w", gateway, err)
	case p.VLAN != root.VLAN:
		return p, addr, fmt.Errorf("egress gateway %s stands in VLAN %d and the ingress gateway in VLAN %d (0: none): both have to stand in the same", gateway, p.VLAN, root.VLAN)
	case !c.Network.CanSet(p.At.Switch, openflow.FieldIPv4Dst) || !c.Network.CanSet(p.At.Switch, openflow.FieldUDPDst):
		return p, addr, fmt.Errorf("switch %v before egress gateway %s cannot rewrite IPv4 addresses and UDP ports", p.At.Switch, gateway)
	}
	return p, addr, nil
}

// treatment returns the treatment that other services promise to a channel's packets to a gateway,
// such as a class of traffic, at the port where the gateway is attached. It looks for packets from
// the channel's source to the gateway, because viewers' copies leave the last switch in this form.
func (c *core) treatment(from netip.AddrPort, to netip.Addr, at agents.Place) network.Carried {
	vlan := openflow.NoVLAN()
	if at.VLAN != 0 {
		vlan = openflow.VLANVID(at.VLAN)
	}
	m := openflow.MustMatch(openflow.EthDst(at.MAC), vlan, openflow.EthType(0x0800), openflow.IPDSCP(0), openflow.IPProto(17),
		openflow.IPSrc(from.Addr()), openflow.IPDst(to), openflow.UDPSrc(from.Port()))
	return network.Carried{Treatment: c.Treatments.Of(m).Name, At: at.At}
}
