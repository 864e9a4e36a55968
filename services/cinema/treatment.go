package cinema

import (
	"net/netip"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// treatment returns what other services promise to a channel's packets to a gateway, at the
// gateway's place. It matches packets from the channel's source to the gateway, which is how
// viewers' copies leave the last switch.
func (c *core) treatment(from netip.AddrPort, to netip.Addr, at agents.Place) network.Carried {
	vlan := openflow.NoVLAN()
	if at.VLAN != 0 {
		vlan = openflow.VLANVID(at.VLAN)
	}
	m := openflow.MustMatch(openflow.EthDst(at.MAC), vlan, openflow.EthType(0x0800), openflow.IPDSCP(0), openflow.IPProto(17),
		openflow.IPSrc(from.Addr()), openflow.IPDst(to), openflow.UDPSrc(from.Port()))
	return network.Carried{Treatment: c.Treatments.Of(m).Name, At: at.At}
}

// queues returns the queues in which a channel leaves by the links of its tree, and reports to
// the services that promise them where it goes. A link to several gateways carries the channel
// once, with the treatment that is first by name.
func (c *core) queues(t tree.Tree, to map[openflow.DatapathID][]network.Carried) map[network.PortRef]uint32 {
	by := map[openflow.DatapathID]network.PortRef{}
	for _, e := range t.Edges {
		by[e.To.Switch] = e.From
	}
	carried, queues := map[network.PortRef]network.Carried{}, map[network.PortRef]uint32{}
	var all []network.Carried
	for d, list := range to {
		for _, x := range list {
			all = append(all, x)
			for at, on := by[d]; on; at, on = by[at.Switch] {
				if emit := carried[at].Treatment; emit == "" || x.Treatment < emit {
					carried[at] = network.Carried{Treatment: x.Treatment, At: at}
				}
			}
		}
	}
	for at, x := range carried {
		all = append(all, x)
		if q := c.Treatments.Queue(x); q != 0 {
			queues[at] = q
		}
	}
	if len(all) > 0 {
		c.Treatments.Carry(all)
	}
	return queues
}
