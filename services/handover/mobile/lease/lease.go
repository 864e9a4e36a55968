package lease

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
)

// Lease is an address that a server has granted, with its parameters.
type Lease struct {
	Address netip.Prefix `json:"address"`
	// Server is the server's identifier, and ServerMAC the source of its answer. Renewals are sent
	// to these addresses.
	Server    netip.Addr   `json:"server"`
	ServerMAC openflow.MAC `json:"server_mac"`
	Router    netip.Addr   `json:"router,omitzero"`
	Routes    []Route      `json:"routes,omitempty"`
	DNS       []netip.Addr `json:"dns,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	MTU       int          `json:"mtu,omitempty"`

	Granted time.Time `json:"granted"`
	// Renew is when the client asks the server to extend the lease, and Rebind is when it asks any
	// server: T1 and T2 of RFC 2131.
	Renew   time.Time `json:"renew"`
	Rebind  time.Time `json:"rebind"`
	Expires time.Time `json:"expires"`
}

// Route is a classless static route (RFC 3442).
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is the router; if it is unset the destination is on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// Valid reports whether the address may be used at the given time.
func (l *Lease) Valid(at time.Time) bool {
	return l != nil && l.Address.IsValid() && at.Before(l.Expires)
}

// Limits of the values that are accepted from a server.
const (
	minLease = 2 * time.Second
	minMTU   = 576
	maxList  = 64 // routes or name servers
	// maxDomain is the limit of DNS for a name.
	maxDomain = 253
)

// fromACK returns the lease that a server's acknowledgement grants.
func fromACK(m *dhcpv4.DHCPv4, from openflow.MAC, now time.Time) (Lease, error) {
	address, ok := toAddr(m.YourIPAddr)
	if !ok || address.IsMulticast() || address.IsLoopback() || address.IsLinkLocalUnicast() {
		return Lease{}, fmt.Errorf("the server grants %v, which is no host's address", m.YourIPAddr)
	}
	bits := 32
	if mask := m.SubnetMask(); mask != nil {
		ones, size := mask.Size()
		if size != 32 || ones == 0 {
			return Lease{}, fmt.Errorf("the server says that the subnet mask is %v", mask)
		}
		bits = ones
	}
	server, ok := toAddr(m.ServerIdentifier())
	if !ok {
		return Lease{}, errors.New("the acknowledgement names no server")
	}
	lasts := m.IPAddressLeaseTime(0)
	if lasts < minLease {
		return Lease{}, fmt.Errorf("the server grants the address for %v only", lasts)
	}
	now = now.Round(0) // times follow the wall clock, which continues while the device is suspended
	l := Lease{
		Address: netip.PrefixFrom(address, bits),
		Server:  server, ServerMAC: from,
		Domain: domainName(m), DNS: addrs(m.DNS()),
		Granted: now, Expires: now.Add(lasts),
	}
	l.Renew, l.Rebind = renewalTimes(m, now, lasts)
	if routers := addrs(m.Router()); len(routers) > 0 {
		l.Router = routers[0]
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, m.Options); err == nil && mtu >= minMTU {
		l.MTU = int(mtu)
	}
	l.setRoutes(m)
	return l, nil
}

var domainForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$`)

// domainName returns the domain name, or an empty string if it is not valid: it is written into a
// file, and a server may send anything.
func domainName(m *dhcpv4.DHCPv4) string {
	if name := m.DomainName(); len(name) <= maxDomain && domainForm.MatchString(name) {
		return name
	}
	return ""
}

// renewalTimes returns T1 and T2, at half and at seven eighths unless the server sends other
// values.
func renewalTimes(m *dhcpv4.DHCPv4, now time.Time, lasts time.Duration) (renew, rebind time.Time) {
	t1, t2 := m.IPAddressRenewalTime(lasts/2), m.IPAddressRebindingTime(lasts-lasts/8)
	if t1 <= 0 || t1 >= t2 || t2 >= lasts {
		t1, t2 = lasts/2, lasts-lasts/8
	}
	return now.Add(t1), now.Add(t2)
}

// setRoutes sets the classless static routes, which replace the router.
func (l *Lease) setRoutes(m *dhcpv4.DHCPv4) {
	routes := m.ClasslessStaticRoute()
	if len(routes) == 0 || len(routes) > maxList {
		return
	}
	l.Router = netip.Addr{}
	for _, r := range routes {
		to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		if !ok {
			continue
		}
		bits, _ := r.Dest.Mask.Size()
		via, _ := toAddr(r.Router) // 0.0.0.0 stands for the link
		if bits == 0 && via.IsValid() {
			l.Router = via
			continue
		}
		l.Routes = append(l.Routes, Route{To: netip.PrefixFrom(to, bits).Masked(), Via: via})
	}
}

// toAddr returns the IPv4 address, and false if it is none or 0.0.0.0.
func toAddr(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a, true
}

// addrs returns the valid IPv4 addresses, up to maxList.
func addrs(ips []net.IP) []netip.Addr {
	var out []netip.Addr
	for _, ip := range ips {
		if a, ok := toAddr(ip); ok && len(out) < maxList {
			out = append(out, a)
		}
	}
	return out
}
