package lab

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// These are the prefix and the base address of every lab's control network.
var (
	controlPrefix = netip.MustParsePrefix("198.18.0.0/16")
	controlBase   = netip.MustParseAddr("198.18.0.0")
)

// Nodes of the control network are numbered from these offsets: controllers from .0.1, switches
// from .16.1, agents from .32.1.
const (
	controllerBase = 0
	switchBase     = 16 << 8
	agentBase      = 32 << 8
	maxNodes       = 16<<8 - 1
)

const (
	defaultMTU            = 1500
	defaultControllerPort = 6653
	controlInterface      = "ctl0"
	bridgeName            = "br0"
	controlNode           = "ctl"
	controlPrefixName     = "control-" // prefix of the names of links to the control network
)

// iface is a network interface of a node, as the lab will make it.
type iface struct {
	Node      string           `json:"node"`
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	MAC       net.HardwareAddr `json:"mac"`
	Addresses []netip.Prefix   `json:"addresses,omitempty"`
	MTU       int              `json:"mtu"`
	Port      int              `json:"port,omitempty"` // OpenFlow port; 0 on hosts
	// Offload reports whether the receiver of the interface's frames accepts super-packets and
	// partial checksums: a host's kernel, or a switch with offload.
	Offload bool `json:"offload,omitempty"`
}

// wire is a link with its two interfaces, as the lab will make it.
type wire struct {
	Link Link  `json:"link"`
	A    iface `json:"a"`
	B    iface `json:"b"`
}

// plan is a topology with all names, addresses and ports decided.
type plan struct {
	Topology Topology `json:"topology"`
	Wires    []wire   `json:"wires"`
	// Controls holds the links to the control network: A is the bridge's port, B the node's
	// interface.
	Controls  []wire                `json:"controls,omitempty"`
	ControlIP map[string]netip.Addr `json:"control_ip"` // by the name of the node or controller
}

// newPlan fills in the topology's defaults and decides what it leaves open. It fails if the
// topology is not valid.
func newPlan(t Topology) (plan, error) {
	t = t.withDefaults()
	if err := t.Validate(); err != nil {
		return plan{}, err
	}
	p := plan{Topology: t, ControlIP: map[string]netip.Addr{}}
	for i, c := range t.Controllers {
		p.ControlIP[c.Name] = offset(controlBase, controllerBase+i+1)
	}
	for i, s := range t.Switches {
		p.joinControl(s.Name, offset(controlBase, switchBase+i+1), s.ControlDelay)
	}
	for i, h := range t.Hosts {
		if h.Agent {
			p.joinControl(h.Name, offset(controlBase, agentBase+i+1), 0)
		}
	}
	ports := newPortAllocator(t)
	for _, l := range t.Links {
		p.Wires = append(p.Wires, wire{
			Link: l,
			A:    p.newIface(ports, l, l.A),
			B:    p.newIface(ports, l, l.B),
		})
	}
	return p, nil
}

func (p plan) namespace(node string) string { return namespaceName(p.Topology.Name, node) }

// namespaces returns the names of all nodes' namespaces.
func (p plan) namespaces() []string {
	names := []string{p.namespace(controlNode)}
	for _, s := range p.Topology.Switches {
		names = append(names, p.namespace(s.Name))
	}
	for _, h := range p.Topology.Hosts {
		names = append(names, p.namespace(h.Name))
	}
	return names
}

func namespaceName(lab, node string) string { return "sluice-" + lab + "-" + node }

func (p plan) newIface(ports *portAllocator, l Link, e End) iface {
	n := ports.next(e)
	f := iface{Node: e.Node, Namespace: p.namespace(e.Node), MTU: l.MTU, Addresses: e.Addresses}
	if i := p.Topology.switchIndex(e.Node); i >= 0 {
		f.Name, f.Port = portName(n), n
		f.MAC = mac(0x12, i, n)
		f.Offload = p.Topology.Switches[i].Offload
		return f
	}
	i := p.Topology.hostIndex(e.Node)
	h := p.Topology.Hosts[i]
	f.Name = fmt.Sprintf("eth%d", n)
	f.MAC, f.Offload = mac(0x02, i, n), true
	if n == 0 && len(f.Addresses) == 0 {
		f.Addresses = h.Addresses
	}
	if h.MTU != 0 {
		f.MTU = h.MTU
	}
	return f
}

// joinControl gives a node an address and a link in the control network.
func (p *plan) joinControl(node string, addr netip.Addr, delay time.Duration) {
	p.ControlIP[node] = addr
	n := len(p.Controls) + 1
	both := delayline.Params{Delay: delay}
	p.Controls = append(p.Controls, wire{
		Link: Link{Name: controlLinkName(node), MTU: controlMTU, AtoB: both, BtoA: both},
		A: iface{
			Node: controlNode, Namespace: p.namespace(controlNode), Name: fmt.Sprintf("port%d", n),
			MAC: mac(0x32, n, 0), MTU: controlMTU, Offload: true,
		},
		B: iface{
			Node: node, Namespace: p.namespace(node), Name: controlInterface, MAC: mac(0x22, n, 0),
			MTU: controlMTU, Offload: true, Addresses: []netip.Prefix{netip.PrefixFrom(addr, controlPrefix.Bits())},
		},
	})
}

// controlLinkName returns the name of a node's link to the control network.
func controlLinkName(node string) string { return controlPrefixName + node }

// mac returns the hardware address of a node's interface. It is locally administered, and encodes
// the node and the interface's number.
func mac(kind byte, node, n int) net.HardwareAddr {
	return net.HardwareAddr{kind, 0, byte((node + 1) >> 8), byte(node + 1), byte(n >> 8), byte(n)}
}

// portName returns the name of the interface at an OpenFlow port.
func portName(port int) string { return fmt.Sprintf("eth%d", port) }

// portAllocator numbers the interfaces of each node: those of hosts from 0, those of switches from
// 1. It skips ports that the topology names.
type portAllocator struct {
	hosts map[string]bool
	count map[string]int
	taken map[string]map[int]bool
}

func newPortAllocator(t Topology) *portAllocator {
	a := &portAllocator{hosts: map[string]bool{}, count: map[string]int{}, taken: map[string]map[int]bool{}}
	for _, h := range t.Hosts {
		a.hosts[h.Name] = true
	}
	for _, l := range t.Links {
		for _, e := range []End{l.A, l.B} {
			if a.taken[e.Node] == nil {
				a.taken[e.Node] = map[int]bool{}
			}
			if e.Port != 0 {
				a.taken[e.Node][e.Port] = true
			}
		}
	}
	return a
}

func (a *portAllocator) next(e End) int {
	if a.hosts[e.Node] {
		n := a.count[e.Node]
		a.count[e.Node]++
		return n
	}
	if e.Port != 0 {
		return e.Port
	}
	n := a.count[e.Node] + 1
	for a.taken[e.Node][n] {
		n++
	}
	a.count[e.Node] = n
	return n
}

// offset returns the address n after base.
func offset(base netip.Addr, n int) netip.Addr {
	b := base.AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
