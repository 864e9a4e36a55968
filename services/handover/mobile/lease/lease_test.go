package lease

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

func ack(t testing.TB, modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(dhcpv4.MessageTypeAck), dhcpv4.WithYourIP(net.IP{10, 8, 0, 10}),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IP{10, 8, 0, 1})), dhcpv4.WithLeaseTime(1000),
	}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	m.OpCode = dhcpv4.OpcodeBootReply
	return m
}

func TestLeaseFromACK(t *testing.T) {
	now := time.Unix(1000, 0)
	after := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	routes := dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(
		&dhcpv4.Route{Dest: &net.IPNet{IP: net.IP{10, 9, 0, 0}, Mask: net.CIDRMask(16, 32)}, Router: net.IP{10, 8, 0, 3}},
		&dhcpv4.Route{Dest: &net.IPNet{IP: net.IP{0, 0, 0, 0}, Mask: net.CIDRMask(0, 32)}, Router: net.IP{10, 8, 0, 4}},
		&dhcpv4.Route{Dest: &net.IPNet{IP: net.IP{10, 7, 0, 0}, Mask: net.CIDRMask(24, 32)}, Router: net.IP{0, 0, 0, 0}},
	))
	base := Lease{
		Address: netip.MustParsePrefix("10.8.0.10/32"), Server: netip.MustParseAddr("10.8.0.1"), ServerMAC: serverMAC,
		Granted: now, Renew: after(500), Rebind: after(875), Expires: after(1000),
	}
	for _, c := range []struct {
		name string
		edit []dhcpv4.Modifier
		want func(*Lease)
	}{
		{"the least", nil, func(*Lease) {}},
		{"everything", []dhcpv4.Modifier{
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(net.IP{10, 8, 0, 1}, net.IP{10, 8, 0, 2}),
			dhcpv4.WithDNS(net.IP{9, 9, 9, 9}), dhcpv4.WithOption(dhcpv4.OptDomainName("a.example")),
			dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{5, 120}),
			dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(100 * time.Second)), dhcpv4.WithOption(dhcpv4.OptRebindingTimeValue(200 * time.Second)),
		}, func(l *Lease) {
			l.Address = netip.MustParsePrefix("10.8.0.10/24")
			l.Router, l.MTU, l.Domain = netip.MustParseAddr("10.8.0.1"), 1400, "a.example"
			l.DNS = []netip.Addr{netip.MustParseAddr("9.9.9.9")}
			l.Renew, l.Rebind = after(100), after(200)
		}},
		{"times that make no sense", []dhcpv4.Modifier{
			dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(900 * time.Second)), dhcpv4.WithOption(dhcpv4.OptRebindingTimeValue(200 * time.Second)),
		}, func(*Lease) {}},
		{"a domain that is more than a line", []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptDomainName("a.example\nnameserver 192.0.2.9"))}, func(*Lease) {}},
		{"an MTU that nobody can use", []dhcpv4.Modifier{dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{0, 68})}, func(*Lease) {}},
		{"routes in place of the router", []dhcpv4.Modifier{dhcpv4.WithRouter(net.IP{10, 8, 0, 1}), routes}, func(l *Lease) {
			l.Router = netip.MustParseAddr("10.8.0.4")
			l.Routes = []Route{
				{To: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.8.0.3")},
				{To: netip.MustParsePrefix("10.7.0.0/24")},
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := base
			c.want(&want)
			got, err := fromACK(ack(t, c.edit...), serverMAC, now)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestACKsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		edit       dhcpv4.Modifier
	}{
		{"no address", "no host's address", dhcpv4.WithYourIP(net.IPv4zero)},
		{"multicast", "no host's address", dhcpv4.WithYourIP(net.IP{224, 0, 0, 1})},
		{"loopback", "no host's address", dhcpv4.WithYourIP(net.IP{127, 0, 0, 1})},
		{"no server", "names no server", dhcpv4.WithoutOption(dhcpv4.OptionServerIdentifier)},
		{"no time", "only", dhcpv4.WithoutOption(dhcpv4.OptionIPAddressLeaseTime)},
		{"one second", "only", dhcpv4.WithLeaseTime(1)},
		{"a mask of nothing", "subnet mask", dhcpv4.WithNetmask(net.CIDRMask(0, 32))},
		{"a mask with holes", "subnet mask", dhcpv4.WithNetmask(net.IPMask{255, 0, 255, 0})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if l, err := fromACK(ack(t, c.edit), serverMAC, time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %q", l, err, c.want)
			}
		})
	}
}

// An unlimited lease does not overflow.
func TestLeaseForEver(t *testing.T) {
	now := time.Now()
	l, err := fromACK(ack(t, dhcpv4.WithLeaseTime(0xffffffff)), serverMAC, now)
	if err != nil || !l.Renew.After(now) || !l.Rebind.After(l.Renew) || !l.Expires.After(l.Rebind) {
		t.Errorf("%+v, %v", l, err)
	}
}

func FuzzParse(f *testing.F) {
	m := ack(f, dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithDNS(net.IP{9, 9, 9, 9}), dhcpv4.WithRouter(net.IP{10, 8, 0, 1}))
	whole := frame(addresses{dst: nic, src: serverMAC, to: base4, from: base4}, m)
	whole[35], whole[37] = 67, 68 // from the server to the client; unsummed below
	f.Add(whole, true)
	f.Add(whole, false)
	f.Add(whole[:50], true)
	f.Fuzz(func(t *testing.T, b []byte, unsummed bool) {
		r, err := parse(b, unsummed)
		if err != nil {
			return
		}
		l, err := fromACK(r.Message, r.From, time.Unix(0, 0))
		if err != nil {
			return
		}
		if !l.Address.IsValid() || !l.Valid(l.Granted) || l.Renew.After(l.Rebind) || l.Rebind.After(l.Expires) || !l.Server.IsValid() {
			t.Errorf("lease %+v", l)
		}
		for _, r := range l.Routes {
			if !r.To.IsValid() {
				t.Errorf("route %+v", r)
			}
		}
	})
}

var base4 = netip.MustParseAddr("10.8.0.10")
