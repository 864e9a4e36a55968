package registry

import (
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Bounds of what is stored.
const (
	maxClasses  = 256
	maxPools    = 256
	maxDevices  = 1 << 17
	maxLearned  = 1 << 16
	maxUnleased = 4096
	maxVisitors = 1 << 14
	maxMACs     = 16
	maxPorts    = 1024
	maxRange    = 1 << 20
	maxDNS      = 8
	maxClientID = 255

	// KeyBytes is the size of a device's key.
	KeyBytes = 32

	minLeaseTime = 5 * time.Second
	maxLeaseTime = 365 * 24 * time.Hour
	minMTU       = 576
	maxMTU       = 9216
	maxOverlap   = 10 * time.Second
)

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}$`)
	domainPattern = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)
)

const nameWant = "1 to 64 letters, digits and any of . _ : @ -, a letter or digit first"

// faults returns the faults of the class alone, without conflicts with others.
func (c Class) faults() kit.Faults {
	var f kit.Faults
	f.Check(namePattern.MatchString(c.Name), "name", c.Name, nameWant)
	f.Check(c.Policy == "" || c.Policy == PolicySaving || c.Policy == PolicySeamless, "policy", c.Policy, "saving or seamless")
	switch c.Trigger {
	case "", TriggerSigned, TriggerPorts, TriggerOpen:
	default:
		f.Add("trigger", c.Trigger, "signed, ports or open; or nothing: signed for devices with a key, ports for others")
	}
	f.Check(c.Overlap >= 0 && c.Overlap <= maxOverlap, "overlap", c.Overlap, "0 to %v", maxOverlap)
	checkPorts(&f, c.Ports)
	return f
}

// checkPorts adds a fault for each invalid switch port, and for too many ports.
func checkPorts(f *kit.Faults, ports []network.PortRef) {
	f.Check(len(ports) <= maxPorts, "ports", len(ports), "at most %d ports", maxPorts)
	for i, p := range ports {
		f.Check(p.Switch != 0 && p.Port != 0 && p.Port <= openflow.PortMax, fmt.Sprintf("ports[%d]", i), p, "a switch and one of its ports")
	}
}

// faults returns the faults of the pool alone, without conflicts with others.
func (p Pool) faults() kit.Faults {
	var f kit.Faults
	f.Check(namePattern.MatchString(p.Name), "name", p.Name, nameWant)
	ok := p.Prefix.IsValid() && p.Prefix.Addr().Is4() && p.Prefix.Bits() >= 8 && p.Prefix.Bits() <= 30 && p.Prefix == p.Prefix.Masked()
	f.Check(ok, "prefix", p.Prefix, "an IPv4 prefix of 8 to 30 bits without bits beyond its length, like 10.8.0.0/16")
	if ok {
		checkPoolAddresses(&f, p)
	}
	f.Check(p.LeaseTime >= minLeaseTime && p.LeaseTime <= maxLeaseTime, "lease_time", p.LeaseTime, "%v to %v", minLeaseTime, maxLeaseTime)
	f.Check(p.MTU == 0 || p.MTU >= minMTU && p.MTU <= maxMTU, "mtu", p.MTU, "%d to %d, or nothing", minMTU, maxMTU)
	f.Check(p.Domain == "" || len(p.Domain) <= 253 && domainPattern.MatchString(p.Domain), "domain", p.Domain, "a domain name like mobile.example, or nothing")
	f.Check(len(p.DNS) <= maxDNS, "dns", len(p.DNS), "at most %d servers", maxDNS)
	for i, a := range p.DNS {
		f.Check(unicast(a), fmt.Sprintf("dns[%d]", i), a, "an IPv4 unicast address")
	}
	f.Check(!p.GatewayMAC.IsMulticast(), "gateway_mac", p.GatewayMAC, "a unicast MAC address, or nothing")
	f.Check(p.Home == "" || namePattern.MatchString(p.Home), "home", p.Home, nameWant)
	f.Check(p.Home == "" || !p.Learn, "learn", p.Learn, "false: another domain's pool takes no devices in")
	return f
}

// checkPoolAddresses adds the faults of the addresses of a pool whose prefix is valid.
func checkPoolAddresses(f *kit.Faults, p Pool) {
	f.Check(p.usable(p.Gateway), "gateway", p.Gateway, "a host's address within %v", p.Prefix)
	f.Check(!p.Server.IsValid() || p.usable(p.Server), "server", p.Server, "a host's address within %v, or nothing", p.Prefix)
	if p.Home != "" {
		f.Check(!p.First.IsValid() && !p.Last.IsValid(), "first", p.First, "nothing: another domain's addresses are not given out here")
		return
	}
	a, b := p.usable(p.First), p.usable(p.Last)
	f.Check(a, "first", p.First, "a host's address within %v", p.Prefix)
	f.Check(b, "last", p.Last, "a host's address within %v", p.Prefix)
	if a && b {
		n := span(p.First, p.Last)
		f.Check(n >= 1 && n <= maxRange, "last", p.Last, "an address not below first, %v, and at most %d addresses beyond it", p.First, maxRange)
	}
}

// usable reports whether a host of the pool's network may have the address.
func (p Pool) usable(a netip.Addr) bool {
	return unicast(a) && p.Prefix.Contains(a) && a != p.Prefix.Addr() && a != broadcast(p.Prefix)
}

// suits reports whether a device may have the address.
func (p Pool) suits(a netip.Addr) bool { return p.usable(a) && a != p.Gateway && a != p.Server }

// gives reports whether the address is one that the pool gives out.
func (p Pool) gives(a netip.Addr) bool {
	return p.First.IsValid() && a.Is4() && !a.Less(p.First) && !p.Last.Less(a) && a != p.Gateway && a != p.Server
}

// withDefaults returns the pool with its defaults filled in: if First or Last is not set, the range
// begins or ends with the prefix's first or last host address.
func (p Pool) withDefaults() Pool {
	if p.Home != "" || !p.Prefix.IsValid() || !p.Prefix.Addr().Is4() {
		return p
	}
	if !p.First.IsValid() {
		p.First = p.Prefix.Masked().Addr().Next()
	}
	if !p.Last.IsValid() {
		p.Last = broadcast(p.Prefix).Prev()
	}
	return p
}

// faults returns the faults of the device alone, without conflicts with others.
func (d Device) faults() kit.Faults {
	var f kit.Faults
	f.Check(namePattern.MatchString(d.ID), "name", d.ID, nameWant)
	f.Check(len(d.MACs) >= 1 && len(d.MACs) <= maxMACs, "macs", len(d.MACs), "1 to %d MAC addresses, those of its interfaces: by them it is known", maxMACs)
	seen := make(map[openflow.MAC]bool, len(d.MACs))
	for i, m := range d.MACs {
		field := fmt.Sprintf("macs[%d]", i)
		f.Check(!m.IsZero() && !m.IsMulticast(), field, m, "a unicast MAC address")
		f.Check(!seen[m], field, m, "each address once")
		seen[m] = true
	}
	f.Check(!d.IP.IsValid() || unicast(d.IP), "ip", d.IP, "an IPv4 unicast address, or nothing")
	f.Check(len(d.Key) == 0 || len(d.Key) == KeyBytes, "key", fmt.Sprintf("%d bytes", len(d.Key)), "%d bytes, or nothing", KeyBytes)
	checkPorts(&f, d.Ports)
	return f
}

// unicast reports whether the address is an IPv4 unicast address of a host.
func unicast(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.As4()[0] != 0 && a.As4()[0] < 240
}

// broadcast returns the last address of an IPv4 prefix.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// span returns the number of addresses from first to last, both included. It is not positive if
// last is below first.
func span(first, last netip.Addr) int {
	n := func(a netip.Addr) int {
		b := a.As4()
		return int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	}
	return n(last) - n(first) + 1
}
