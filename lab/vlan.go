package lab

import "fmt"

// These are the VLANs of VLANWAN's sides.
const (
	vlanWest = 100
	vlanEast = 200
)

// VLANWAN returns a WAN whose provider translates VLANs. The access switches a1 and a2, which have
// fixed rules and no controller, tag the frames of their hosts, so that s1 sees VLAN 100 and s2
// VLAN 200. The provider's switch "vlan" between them translates one into the other. Untagged
// frames (link discovery) pass it unchanged.
func VLANWAN(name string, o WANOptions) Topology {
	return o.finish(Topology{
		Name: name,
		Switches: []Switch{
			{Name: "s1"},
			{Name: "s2"},
			{Name: "a1", Flows: accessFlows(vlanWest, 2)},
			{Name: "a2", Flows: accessFlows(vlanEast, 2)},
			{Name: "vlan", Flows: translationFlows()},
		},
		Hosts: fourHosts(),
		Links: []Link{
			accessLink("client", "a1", 1), uplink("a1", "s1", 1),
			accessLink("x", "a1", 2), uplink("a1", "s1", 2),
			{Name: "s1-vlan", A: End{Node: "s1"}, B: End{Node: "vlan", Port: 1}},
			o.toProvider("vlan", "s2"),
			accessLink("server", "a2", 1), uplink("a2", "s2", 1),
			accessLink("y", "a2", 2), uplink("a2", "s2", 2),
		},
	})
}

func (o WANOptions) toProvider(provider, to string) Link {
	l := o.longLink(provider, to)
	l.A.Port = 2
	return l
}

// accessLink returns the link between an access switch and its n-th host. The switch connects the
// host's port, 2n-1, with port 2n.
func accessLink(host, to string, n int) Link {
	return Link{A: End{Node: host}, B: End{Node: to, Port: 2*n - 1}}
}

func uplink(from, to string, n int) Link {
	return Link{Name: fmt.Sprintf("%s-%s-%d", from, to, n), A: End{Node: from, Port: 2 * n}, B: End{Node: to}}
}

// present is the bit that OpenFlow 1.3 adds to the number of a VLAN.
const present = 1 << 12

// accessFlows returns rules that tag packets from hosts and untag packets to them.
func accessFlows(vlan, hosts int) []string {
	var flows []string
	for n := 1; n <= hosts; n++ {
		flows = append(flows,
			fmt.Sprintf("in_port=%d,actions=push_vlan:0x8100,set_field:%d->vlan_vid,output:%d", 2*n-1, vlan|present, 2*n),
			fmt.Sprintf("in_port=%d,dl_vlan=%d,actions=pop_vlan,output:%d", 2*n, vlan, 2*n-1))
	}
	return flows
}

func translationFlows() []string {
	var flows []string
	for _, d := range []struct{ in, out, from, to int }{{1, 2, vlanWest, vlanEast}, {2, 1, vlanEast, vlanWest}} {
		flows = append(flows,
			fmt.Sprintf("in_port=%d,dl_vlan=%d,actions=set_field:%d->vlan_vid,output:%d", d.in, d.from, d.to|present, d.out),
			fmt.Sprintf("in_port=%d,vlan_tci=0x0000/0x1000,actions=output:%d", d.in, d.out))
	}
	return flows
}
