package lab

import "net/netip"

// Hosts without addresses get theirs from these subnets.
var (
	autoIPv4 = netip.MustParseAddr("10.0.0.0")
	autoIPv6 = netip.MustParseAddr("fd00::")
)

// withDefaults returns the topology with defaults filled in. It does not change t.
func (t Topology) withDefaults() Topology {
	t.Controllers = append([]Controller(nil), t.Controllers...)
	t.Switches = append([]Switch(nil), t.Switches...)
	t.Hosts = append([]Host(nil), t.Hosts...)
	t.Links = append([]Link(nil), t.Links...)
	if len(t.Controllers) == 0 {
		t.Controllers = []Controller{{Name: "c1"}}
	}
	for i := range t.Controllers {
		if t.Controllers[i].Port == 0 {
			t.Controllers[i].Port = defaultControllerPort
		}
	}
	for i := range t.Switches {
		t.Switches[i] = t.Switches[i].withDefaults(i)
	}
	for i := range t.Links {
		l := &t.Links[i]
		if l.MTU == 0 {
			l.MTU = defaultMTU
		}
		if l.Name == "" {
			l.Name = l.A.Node + "-" + l.B.Node
		}
	}
	t.autoAddress()
	return t
}

func (s Switch) withDefaults(i int) Switch {
	if s.DPID == 0 {
		s.DPID = uint64(i + 1)
	}
	if s.Datapath == "" {
		s.Datapath = DatapathAuto
	}
	if len(s.Protocols) == 0 {
		s.Protocols = []string{"OpenFlow13"}
	}
	return s
}

// autoAddress gives each host that has no address at all an IPv4 and an IPv6 address. The addresses
// of each family are in one subnet. autoAddress skips routers and dynamic hosts.
func (t *Topology) autoAddress() {
	linked, addressed := map[string]bool{}, map[string]bool{}
	for _, l := range t.Links {
		for _, e := range []End{l.A, l.B} {
			linked[e.Node] = true
			addressed[e.Node] = addressed[e.Node] || len(e.Addresses) > 0
		}
	}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if h.Router || h.Dynamic || !linked[h.Name] || addressed[h.Name] || len(h.Addresses) > 0 {
			continue
		}
		h.Addresses = []netip.Prefix{
			netip.PrefixFrom(offset(autoIPv4, i+1), 16),
			netip.PrefixFrom(offset(autoIPv6, i+1), 64),
		}
	}
}
