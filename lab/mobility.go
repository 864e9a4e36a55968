package lab

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// MobilityOptions holds the variables of the networks in which devices move. The zero value means a
// root, two switches below it with two edge switches each, and one device with an interface at each
// of the first two edges.
type MobilityOptions struct {
	Levels int // levels of switches, root and edges included; 0 means 3
	Fanout int // switches below each switch; 0 means 2
	// Cross also joins the neighbours of each level below the root, so that paths between edges can
	// meet nearer than at the root.
	Cross bool
	// Roots is 1 or 2. A second root, root2, is joined to the same switches as the first, and leads
	// to the server by a gateway of its own.
	Roots        int
	Devices      int              // 0 means 1
	Interfaces   int              // interfaces of each device; 0 means 2
	Link         delayline.Params // parameters of the links between switches
	Radio        delayline.Params // parameters of the links between devices and edges
	ControlDelay time.Duration    // delay of every switch's link to the control network
}

func (o MobilityOptions) withDefaults() MobilityOptions {
	for _, d := range []struct {
		value *int
		other int
	}{{&o.Levels, 3}, {&o.Fanout, 2}, {&o.Roots, 1}, {&o.Devices, 1}, {&o.Interfaces, 2}} {
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	return o
}

// UplinkPort is the port of a root that leads to the gateway, and PeeringPort the one that leads to
// the other domain's root.
const (
	UplinkPort  = 1
	PeeringPort = 2
)

// MobilityDomain describes one operator's network for moving devices, as its controller must know
// it. The names are those of nodes in the topology.
type MobilityDomain struct {
	Root, Gateway, Server string
	Edges                 []string
	Prefix                netip.Prefix // the devices' addresses
	GatewayAddr           netip.Addr   // an address in Prefix
	ServerAddr            netip.Addr   // an address outside of Prefix
}

// mobilityDomain returns the first (0) or second domain; prefix precedes the names of its nodes.
func mobilityDomain(i int, prefix string, o MobilityOptions) MobilityDomain {
	d := MobilityDomain{
		Root: prefix + "root", Gateway: prefix + "gw", Server: prefix + "server",
		Prefix:      netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(20 + 10*i), 0, 0}), 16),
		GatewayAddr: netip.AddrFrom4([4]byte{10, byte(20 + 10*i), 0, 1}),
		ServerAddr:  netip.AddrFrom4([4]byte{192, 0, byte(2 + i), 10}),
	}
	edges := 1
	for range o.Levels - 1 {
		edges *= o.Fanout
	}
	for n := range edges {
		d.Edges = append(d.Edges, fmt.Sprintf("%sedge%d", prefix, n+1))
	}
	return d
}

// Domain describes the network that Mobility makes.
func (o MobilityOptions) Domain() MobilityDomain { return mobilityDomain(0, "", o.withDefaults()) }

// Domains describes the networks that MobilityDomains makes.
func (o MobilityOptions) Domains() (a, b MobilityDomain) {
	o = o.withDefaults()
	return mobilityDomain(0, "a-", o), mobilityDomain(1, "b-", o)
}

// Mobility returns a network in which devices move: a tree of switches below "root", whose leaves
// are "edge1", "edge2" and so on. Behind the root are the router "gw" and "server". The devices
// "dev1", "dev2" and so on get their addresses by themselves. Their links are named dev1-eth0 and
// so on. Successive interfaces of a device are at successive edges, and so are the first interfaces
// of successive devices.
func Mobility(name string, o MobilityOptions) Topology {
	o = o.withDefaults()
	t, d := Topology{Name: name}, o.Domain()
	o.addDomain(&t, d, "", "")
	if o.Roots > 1 {
		o.addSecondRoot(&t, d)
	}
	o.addDevices(&t, d.Edges)
	return t
}

// MobilityDomains returns two operators' networks as Mobility makes them. All names are prefixed by
// "a-" and "b-", and the controllers are "a" and "b". A link "peering" joins the roots, and a link
// "transit" the gateways. Successive interfaces of a device are in alternating domains.
func MobilityDomains(name string, o MobilityOptions) Topology {
	o = o.withDefaults()
	a, b := o.Domains()
	t := Topology{Name: name, Controllers: []Controller{{Name: "a"}, {Name: "b"}}}
	o.addDomain(&t, a, "a-", "a")
	o.addDomain(&t, b, "b-", "b")
	transit := [2]netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")}
	t.Links = append(t.Links,
		Link{
			Name: "peering", A: End{Node: a.Root, Port: PeeringPort}, B: End{Node: b.Root, Port: PeeringPort},
			AtoB: o.Link, BtoA: o.Link,
		},
		Link{
			Name: "transit",
			A:    End{Node: a.Gateway, Addresses: []netip.Prefix{netip.PrefixFrom(transit[0], 30)}},
			B:    End{Node: b.Gateway, Addresses: []netip.Prefix{netip.PrefixFrom(transit[1], 30)}},
		})
	for i := range t.Hosts {
		switch h := &t.Hosts[i]; h.Name {
		case a.Gateway:
			h.Routes = append(h.Routes, Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: transit[1]})
		case b.Gateway:
			h.Routes = append(h.Routes, Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: transit[0]})
		}
	}
	var edges []string
	for n := range a.Edges {
		edges = append(edges, a.Edges[n], b.Edges[n])
	}
	o.addDevices(&t, edges)
	return t
}

// looseSysctls returns sysctls that let a host accept packets on any of its interfaces.
func looseSysctls() map[string]string {
	return map[string]string{"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0"}
}

// addDomain adds the switches, the gateway and the server of a domain.
func (o MobilityOptions) addDomain(t *Topology, d MobilityDomain, prefix, controller string) {
	var controllers []string
	if controller != "" {
		controllers = []string{controller}
	}
	o.addTree(t, d, prefix, controllers)
	server := netip.PrefixFrom(d.ServerAddr, 24)
	near := server.Masked().Addr().Next() // the gateway's address at the server's side
	t.Hosts = append(t.Hosts,
		Host{Name: d.Gateway, Router: true, Congestion: ordinaryTCP, Sysctls: looseSysctls()},
		Host{
			Name: d.Server, Addresses: []netip.Prefix{server}, Congestion: ordinaryTCP, Sysctls: looseSysctls(),
			Routes: []Route{{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: near}},
		})
	t.Links = append(t.Links,
		Link{
			Name: prefix + "uplink", B: End{Node: d.Root, Port: UplinkPort},
			A: End{Node: d.Gateway, Addresses: []netip.Prefix{netip.PrefixFrom(d.GatewayAddr, d.Prefix.Bits())}},
		},
		Link{A: End{Node: d.Gateway, Addresses: []netip.Prefix{netip.PrefixFrom(near, 24)}}, B: End{Node: d.Server}})
}

// addTree adds the switches level by level. Switches between root and edges are named core1, core2
// and so on.
func (o MobilityOptions) addTree(t *Topology, d MobilityDomain, prefix string, controllers []string) {
	add := func(name string) string {
		t.Switches = append(t.Switches, Switch{Name: name, Controllers: controllers, ControlDelay: o.ControlDelay})
		return name
	}
	level, cores, edges := []string{add(d.Root)}, 0, 0
	for n := 1; n < o.Levels; n++ {
		var next []string
		for _, parent := range level {
			for range o.Fanout {
				var child string
				if n == o.Levels-1 {
					edges++
					child = add(d.Edges[edges-1])
				} else {
					cores++
					child = add(fmt.Sprintf("%score%d", prefix, cores))
				}
				t.Links = append(t.Links, Both(parent, child, o.Link))
				if o.Cross && len(next) > 0 {
					t.Links = append(t.Links, Both(next[len(next)-1], child, o.Link))
				}
				next = append(next, child)
			}
		}
		level = next
	}
}

// addSecondRoot adds root2 and a gateway, and gives the server an interface behind it. The server's
// answers still go by the first gateway.
func (o MobilityOptions) addSecondRoot(t *Topology, d MobilityDomain) {
	t.Switches = append(t.Switches, Switch{Name: "root2", ControlDelay: o.ControlDelay})
	for _, l := range t.Links {
		if l.A.Node == d.Root {
			t.Links = append(t.Links, Both("root2", l.B.Node, o.Link))
		}
	}
	own := netip.MustParsePrefix("198.51.100.10/24")
	near := own.Masked().Addr().Next()
	t.Hosts = append(t.Hosts, Host{
		Name: "gw2", Router: true, Congestion: ordinaryTCP, Sysctls: looseSysctls(),
		Routes: []Route{{To: netip.PrefixFrom(d.ServerAddr, 24).Masked(), Via: own.Addr()}},
	})
	t.Links = append(t.Links,
		Link{
			Name: "uplink2", B: End{Node: "root2", Port: UplinkPort},
			A: End{Node: "gw2", Addresses: []netip.Prefix{netip.PrefixFrom(d.GatewayAddr.Next(), d.Prefix.Bits())}},
		},
		Link{
			A: End{Node: "gw2", Addresses: []netip.Prefix{netip.PrefixFrom(near, 24)}},
			B: End{Node: d.Server, Addresses: []netip.Prefix{own}},
		})
}

func (o MobilityOptions) addDevices(t *Topology, edges []string) {
	for i := range o.Devices {
		name := fmt.Sprintf("dev%d", i+1)
		t.Hosts = append(t.Hosts, Host{Name: name, Dynamic: true, Sysctls: looseSysctls()})
		for j := range o.Interfaces {
			l := Both(name, edges[(i+j)%len(edges)], o.Radio)
			l.Name = fmt.Sprintf("%s-eth%d", name, j)
			t.Links = append(t.Links, l)
		}
	}
}
