package lab

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// ordinaryTCP is the congestion control of an unmodified Linux host, whatever
// this kernel's own default is.
const ordinaryTCP = "cubic"

// WANOptions holds the variables of the topologies with one long link. The zero value is the
// demo's: 300 Mbit/s, 150 ms round trip, 0.05 % loss.
type WANOptions struct {
	Rate  float64       // bit/s
	RTT   time.Duration // of the long link, both directions together
	Loss  float64       // in each direction, 0 to 1; negative means none
	Queue int64         // bytes; 0 means one bandwidth-delay product
	MTU   int           // of all links; 0 means 1500
	// Offload lets super-packets pass the switches: see Switch.Offload.
	Offload bool
}

// params returns the long link's parameters, the same in each direction.
func (o WANOptions) params() delayline.Params {
	p := delayline.Params{Rate: o.Rate, Delay: o.RTT / 2, Loss: max(o.Loss, 0), Queue: o.Queue}
	if o.Rate == 0 {
		p.Rate = 300e6
	}
	if o.RTT == 0 {
		p.Delay = 75 * time.Millisecond
	}
	if o.Loss == 0 {
		p.Loss = 0.0005
	}
	return p
}

// longLink returns the long link between two nodes.
func (o WANOptions) longLink(a, b string) Link {
	l := Both(a, b, o.params())
	l.Name = "wan"
	return l
}

// finish sets the MTU of all links and the offload of all switches.
func (o WANOptions) finish(t Topology) Topology {
	for i := range t.Switches {
		t.Switches[i].Offload = o.Offload
	}
	for i := range t.Links {
		t.Links[i].MTU = o.MTU
	}
	return t
}

// fourHosts returns an unmodified client and server and their agents.
func fourHosts() []Host {
	return []Host{
		{Name: "client", Congestion: ordinaryTCP},
		{Name: "server", Congestion: ordinaryTCP},
		{Name: "x", Agent: true},
		{Name: "y", Agent: true},
	}
}

func plain(a, b string) Link { return Both(a, b, delayline.Params{}) }

// WAN returns two sites, each with a switch, a host and an agent, and one long link between the
// switches: client and x on s1, server and y on s2, s1=s2.
func WAN(name string, o WANOptions) Topology {
	return o.finish(Topology{
		Name:     name,
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}},
		Hosts:    fourHosts(),
		Links: []Link{
			plain("client", "s1"), plain("x", "s1"), o.longLink("s1", "s2"),
			plain("server", "s2"), plain("y", "s2"),
		},
	})
}

// TwoPathWAN returns a WAN with two paths between the sites, each over a core switch of its own:
// s1-m1-s2 and s1-m2-s2. The links "path1" and "path2" have the given properties.
func TwoPathWAN(name string, path1, path2 delayline.Params) Topology {
	t := Topology{
		Name:     name,
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}, {Name: "m1"}, {Name: "m2"}},
		Hosts:    fourHosts(),
		Links:    []Link{plain("client", "s1"), plain("x", "s1")},
	}
	for i, p := range []delayline.Params{path1, path2} {
		core := fmt.Sprintf("m%d", i+1)
		l := Both("s1", core, p)
		l.Name = fmt.Sprintf("path%d", i+1)
		t.Links = append(t.Links, l, plain(core, "s2"))
	}
	t.Links = append(t.Links, plain("server", "s2"), plain("y", "s2"))
	return t
}

// LimitedWAN returns a WAN whose switches rewrite Ethernet addresses only, as much hardware does.
// Between each agent and its site's switch is a software switch: x-xs-s1=s2-ys-y.
func LimitedWAN(name string, o WANOptions) Topology {
	limited := []string{CapabilityL2Rewrite}
	return o.finish(Topology{
		Name: name,
		Switches: []Switch{
			{Name: "s1", Capabilities: limited},
			{Name: "s2", Capabilities: limited},
			{Name: "xs"},
			{Name: "ys"},
		},
		Hosts: fourHosts(),
		Links: []Link{
			plain("client", "s1"), plain("xs", "s1"), plain("x", "xs"), o.longLink("s1", "s2"),
			plain("server", "s2"), plain("ys", "s2"), plain("y", "ys"),
		},
	})
}

// Islands returns two OpenFlow islands with a plain IP network between them: s1 with client and x
// in one subnet, s2 with server and y in another, joined by the routers r1=r2, which no controller
// knows.
func Islands(name string, o WANOptions) Topology {
	hosts := fourHosts()
	west, east := newSite(1), newSite(2)
	for i, s := range []site{west, east, west, east} {
		hosts[i].Addresses, hosts[i].Routes = s.host(i+1), s.defaultRoutes()
	}
	core := newSite(255)
	hosts = append(hosts,
		Host{Name: "r1", Router: true, Routes: east.routes(core, 2)},
		Host{Name: "r2", Router: true, Routes: west.routes(core, 1)})
	wan := o.longLink("r1", "r2")
	wan.A.Addresses, wan.B.Addresses = core.host(1), core.host(2)
	return o.finish(Topology{
		Name:     name,
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}},
		Hosts:    hosts,
		Links: []Link{
			plain("client", "s1"), plain("x", "s1"),
			{A: End{Node: "r1", Addresses: west.gateway()}, B: End{Node: "s1"}},
			wan,
			{A: End{Node: "r2", Addresses: east.gateway()}, B: End{Node: "s2"}},
			plain("server", "s2"), plain("y", "s2"),
		},
	})
}

// Routed returns a WAN whose client and server are behind routers, so that the switches see the
// routers' Ethernet addresses: client-rc-s1=s2-rs-server.
func Routed(name string, o WANOptions) Topology {
	hosts := fourHosts()
	transit, west, east := newSite(0), newSite(1), newSite(2)
	hosts[0].Addresses, hosts[0].Routes = west.host(1), west.defaultRoutes()
	hosts[1].Addresses, hosts[1].Routes = east.host(1), east.defaultRoutes()
	const rc, rs = 251, 252
	toEnds := append(west.routes(transit, rc), east.routes(transit, rs)...)
	hosts[2].Addresses, hosts[2].Routes = transit.host(3), toEnds
	hosts[3].Addresses, hosts[3].Routes = transit.host(4), toEnds
	hosts = append(hosts,
		Host{Name: "rc", Router: true, Routes: east.routes(transit, rs)},
		Host{Name: "rs", Router: true, Routes: west.routes(transit, rc)})
	return o.finish(Topology{
		Name:     name,
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}},
		Hosts:    hosts,
		Links: []Link{
			{A: End{Node: "client"}, B: End{Node: "rc", Addresses: west.gateway()}},
			{A: End{Node: "rc", Addresses: transit.host(rc)}, B: End{Node: "s1"}},
			plain("x", "s1"), o.longLink("s1", "s2"),
			{A: End{Node: "server"}, B: End{Node: "rs", Addresses: east.gateway()}},
			{A: End{Node: "rs", Addresses: transit.host(rs)}, B: End{Node: "s2"}},
			plain("y", "s2"),
		},
	})
}

// site is a pair of subnets, 10.N.0.0/16 and fd00:N::/64.
type site struct{ v4, v6 netip.Prefix }

func newSite(n byte) site {
	return site{
		v4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n, 0, 0}), 16),
		v6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, n}), 64),
	}
}

// host returns the addresses of the site's n-th host.
func (s site) host(n int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(offset(s.v4.Addr(), n), s.v4.Bits()),
		netip.PrefixFrom(offset(s.v6.Addr(), n), s.v6.Bits()),
	}
}

// gatewayNumber is the host number of a site's router.
const gatewayNumber = 254

func (s site) gateway() []netip.Prefix { return s.host(gatewayNumber) }

// routes returns routes to the site s. Their gateway is the n-th host of the site by.
func (s site) routes(by site, n int) []Route {
	via := by.host(n)
	return []Route{{To: s.v4, Via: via[0].Addr()}, {To: s.v6, Via: via[1].Addr()}}
}

func (s site) defaultRoutes() []Route {
	via := s.gateway()
	return []Route{
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: via[0].Addr()},
		{To: netip.MustParsePrefix("::/0"), Via: via[1].Addr()},
	}
}
