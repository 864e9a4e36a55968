package lab

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// Topology describes a network. It is plain data: nothing is built before Up.
type Topology struct {
	Name string `json:"name"`
	// Controllers lists the controllers that switches may connect to. None means one, named "c1".
	Controllers []Controller `json:"controllers,omitempty"`
	Switches    []Switch     `json:"switches,omitempty"`
	Hosts       []Host       `json:"hosts,omitempty"`
	Links       []Link       `json:"links,omitempty"`
}

// Controller is an address in the control network where a controller will listen. The lab reserves
// the address; it does not run the controller.
type Controller struct {
	Name string `json:"name"`
	Port int    `json:"port,omitempty"` // 0 means 6653
}

// These are the values of Switch.Datapath.
const (
	DatapathAuto      = "auto"
	DatapathKernel    = "kernel"
	DatapathUserspace = "userspace"
)

// CapabilityL2Rewrite means that a switch can rewrite Ethernet addresses only.
const CapabilityL2Rewrite = "l2-rewrite"

// Switch is an Open vSwitch bridge with daemons of its own.
type Switch struct {
	Name     string `json:"name"`
	DPID     uint64 `json:"dpid,omitempty"` // 0 means the switch's place in the list, from 1
	Datapath string `json:"datapath,omitempty"`
	// Protocols lists OpenFlow versions as Open vSwitch writes them. None means OpenFlow13.
	Protocols []string `json:"protocols,omitempty"`
	// Capabilities names the limits of the hardware that the switch stands for. Open vSwitch can do
	// more: CheckCapabilities reports rules that the hardware could not support.
	Capabilities []string `json:"capabilities,omitempty"`
	// Tables is 1 for a switch with one flow table only; 0 means as many as Open vSwitch has.
	Tables int `json:"tables,omitempty"`
	// Offload lets TCP super-packets pass the switch (Open vSwitch's userspace TSO), which
	// multiplies throughput. Packets that cross it have incomplete checksums, as behind any network
	// card with offloads. Neighbouring switches must have the same value.
	Offload bool `json:"offload,omitempty"`
	// Controllers names the switch's controllers; none means all of the topology's.
	Controllers []string `json:"controllers,omitempty"`
	// ControlDelay is the one-way delay of the switch's link to the control network.
	ControlDelay time.Duration `json:"control_delay,omitempty"`
	// Flows, in ovs-ofctl's syntax, makes a fixed-function switch, which has these rules and no
	// controller.
	Flows []string `json:"flows,omitempty"`
}

// Host is a network namespace with interfaces, addresses and routes.
type Host struct {
	Name string `json:"name"`
	// Addresses are those of the first interface. A host with links and no addresses at all gets an
	// IPv4 and an IPv6 address by its place in the list.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Routes    []Route        `json:"routes,omitempty"`
	// MTU is that of all interfaces; 0 means the link's.
	MTU int `json:"mtu,omitempty"`
	// Sysctls holds values by names such as net.ipv4.tcp_congestion_control.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Congestion is the TCP congestion control of the host's connections; empty means the kernel's
	// default. It is set on the routes, because a namespace cannot make every algorithm of the
	// kernel its default.
	Congestion string `json:"congestion,omitempty"`
	// Agent gives the host an interface in the control network.
	Agent bool `json:"agent,omitempty"`
	// Router makes the host forward IP packets.
	Router bool `json:"router,omitempty"`
	// Dynamic hosts get no address from the lab. They obtain their own, for example by DHCP.
	Dynamic bool `json:"dynamic,omitempty"`
}

// Route is a static route of a host.
type Route struct {
	To  netip.Prefix `json:"to"` // 0.0.0.0/0 and ::/0 mean default routes
	Via netip.Addr   `json:"via"`
}

// End is a link's attachment to a node.
type End struct {
	Node string `json:"node"`
	// Addresses are those of the interface, for hosts with several interfaces.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Port is the OpenFlow port number on a switch; 0 means the next free one.
	Port int `json:"port,omitempty"`
}

// Link joins two nodes.
type Link struct {
	Name string `json:"name,omitempty"` // empty means "A-B"
	A    End    `json:"a"`
	B    End    `json:"b"`
	MTU  int    `json:"mtu,omitempty"` // 0 means 1500
	// AtoB and BtoA are the properties of each direction. If both are zero the link is a plain
	// virtual cable, unless Shaped requests a link that can be changed later.
	AtoB   delayline.Params `json:"a_to_b,omitzero"`
	BtoA   delayline.Params `json:"b_to_a,omitzero"`
	Shaped bool             `json:"shaped,omitempty"`
	// Down means that the cable is not plugged in at first.
	Down bool `json:"down,omitempty"`
}

// Both returns a link with the same properties in both directions.
func Both(a, b string, p delayline.Params) Link {
	return Link{A: End{Node: a}, B: End{Node: b}, AtoB: p, BtoA: p}
}

// shaped reports whether the link needs a delay line or netem.
func (l Link) shaped() bool { return l.Shaped || !l.AtoB.IsZero() || !l.BtoA.IsZero() }

func (t Topology) switchIndex(name string) int {
	for i, s := range t.Switches {
		if s.Name == name {
			return i
		}
	}
	return -1
}

func (t Topology) hostIndex(name string) int {
	for i, h := range t.Hosts {
		if h.Name == name {
			return i
		}
	}
	return -1
}
