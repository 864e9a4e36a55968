package dhcp_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
)

func TestDiscoverAndRequest(t *testing.T) {
	b := newBench(t)
	d := b.message(dhcpv4.MessageTypeDiscover, mac(1), dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{255, 1, 2})))
	offer := b.expect(b.handle(d, mac(1), radioA), dhcp.Offered)
	if offer.Attach || offer.Reply.MessageType() != dhcpv4.MessageTypeOffer || offer.Device.ID != "phone" {
		t.Fatalf("offer %+v", offer)
	}
	if len(b.reg.Leases()) != 0 {
		t.Fatal("an offer is a lease")
	}
	q := b.selecting(mac(1), offer.Reply.YourIPAddr)
	q.UpdateOption(dhcpv4.OptClientIdentifier([]byte{255, 1, 2}))
	ack := b.expect(b.handle(q, mac(1), radioA), dhcp.Granted)
	r := ack.Reply
	if !ack.Attach || ack.Previous != nil || ack.Lease.Attachment.At != radioA || ack.Lease.Attachment.MAC != mac(1) {
		t.Fatalf("attached %+v", ack)
	}
	if r.TransactionID != q.TransactionID || r.OpCode != dhcpv4.OpcodeBootReply || !bytes.Equal(r.ClientHWAddr, q.ClientHWAddr) {
		t.Fatalf("not an answer to the request: %v", r)
	}
	for what, ok := range map[string]bool{
		"address":     r.YourIPAddr.Equal(ack.Lease.IP.AsSlice()),
		"router":      r.Router()[0].Equal(gateway.AsSlice()),
		"mask":        bytes.Equal(r.SubnetMask(), net.CIDRMask(24, 32)),
		"DNS":         len(r.DNS()) == 2 && r.DNS()[1].Equal(ip(3).AsSlice()),
		"domain":      r.DomainName() == "mobile.example",
		"MTU":         bytes.Equal(r.Options.Get(dhcpv4.OptionInterfaceMTU), []byte{5, 120}),
		"server":      r.ServerIdentifier().Equal(gateway.AsSlice()),
		"lease time":  r.IPAddressLeaseTime(0) == time.Hour,
		"T1":          r.IPAddressRenewalTime(0) == 30*time.Minute,
		"T2":          r.IPAddressRebindingTime(0) == 52*time.Minute+30*time.Second,
		"client id":   bytes.Equal(r.Options.Get(dhcpv4.OptionClientIdentifier), []byte{255, 1, 2}),
		"kept id":     bytes.Equal(ack.Lease.ClientID, []byte{255, 1, 2}),
		"lease's end": ack.Lease.Expires.Equal(start.Add(time.Hour)),
	} {
		if !ok {
			t.Errorf("%s is wrong: %s", what, r.Summary())
		}
	}
}

// The kinds of REQUEST of RFC 2131, section 4.3.2, from where the device is.
func TestRequests(t *testing.T) {
	other := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IP{10, 8, 0, 254}))
	cases := map[string]struct {
		message func(*bench, netip.Addr) *dhcpv4.DHCPv4
		want    dhcp.Verdict
	}{
		"init-reboot": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 { return b.rebooting(mac(1), a) }, dhcp.Granted},
		"renewing":    {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 { return b.renewing(mac(1), a) }, dhcp.Granted},
		"selecting":   {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 { return b.selecting(mac(1), a.AsSlice()) }, dhcp.Granted},
		"selecting another server": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			m := b.rebooting(mac(1), a)
			other(m)
			return m
		}, dhcp.Ignored},
		"init-reboot in another network": {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 {
			return b.rebooting(mac(1), netip.MustParseAddr("192.168.1.5"))
		}, dhcp.Refused},
		"init-reboot with another address": {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.rebooting(mac(1), ip(12)) }, dhcp.Refused},
		"renewing another's address":       {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.renewing(mac(1), ip(200)) }, dhcp.Refused},
		"selecting the router's address":   {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.selecting(mac(1), gateway.AsSlice()) }, dhcp.Refused},
		"no address at all":                {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.message(dhcpv4.MessageTypeRequest, mac(1)) }, dhcp.Ignored},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			had := b.attach(mac(1), mac(1), radioA).Lease
			b.now = b.now.Add(20 * time.Minute)
			d := b.expect(b.handle(c.message(b, had.IP), mac(1), radioA), c.want)
			has, _ := b.reg.Lease("phone")
			if d.Attach || has.IP != had.IP || (c.want == dhcp.Granted) != has.Expires.After(had.Expires) {
				t.Fatalf("had %+v, has %+v", had, has)
			}
			if nak := d.Reply != nil && d.Reply.MessageType() == dhcpv4.MessageTypeNak; nak != (c.want == dhcp.Refused) {
				t.Fatalf("answered %v", d.Reply)
			}
			if c.want == dhcp.Refused && (d.Reply.YourIPAddr.Equal(net.IP(had.IP.AsSlice())) || d.Reply.IPAddressLeaseTime(0) != 0) {
				t.Fatalf("DHCPNAK with an address: %v", d.Reply.Summary())
			}
		})
	}
}

func TestARebootingClientThatIsKnownGetsAFreeAddress(t *testing.T) {
	b := newBench(t)
	if d := b.expect(b.handle(b.rebooting(mac(1), ip(12)), mac(1), radioA), dhcp.Granted); d.Lease.IP != ip(12) {
		t.Fatalf("granted %v", d.Lease.IP)
	}
}

// A device has one address wherever and by whichever interface it asks.
func TestADeviceMoves(t *testing.T) {
	b := newBench(t)
	first := b.attach(mac(1), mac(1), radioA)
	for _, c := range []struct {
		name     string
		kind     *dhcpv4.DHCPv4
		src      openflow.MAC
		at       network.PortRef
		attach   bool
		previous *registry.Attachment
	}{
		{"same place", b.renewing(mac(1), first.Lease.IP), mac(1), radioA, false, first.Lease.Attachment},
		{"other interface, other port", b.rebooting(mac(2), first.Lease.IP), mac(2), radioB, true, first.Lease.Attachment},
		{"virtual interface through the first", b.renewing(mac(3), first.Lease.IP), mac(1), radioA, true, nil},
		{"other radio at the same port", b.renewing(mac(3), first.Lease.IP), mac(2), radioA, true, nil},
	} {
		was, _ := b.reg.Lease("phone")
		d := b.expect(b.handle(c.kind, c.src, c.at), dhcp.Granted)
		if d.Lease.IP != first.Lease.IP {
			t.Fatalf("%s: address %v became %v", c.name, first.Lease.IP, d.Lease.IP)
		}
		if d.Attach != c.attach || *d.Previous != *was.Attachment || d.Lease.Attachment.At != c.at || d.Lease.Attachment.MAC != c.src {
			t.Fatalf("%s: %+v at %+v, was at %+v", c.name, d, d.Lease.Attachment, was.Attachment)
		}
		if d.To != c.src {
			t.Fatalf("%s: the answer goes to %v, not to the interface that asked", c.name, d.To)
		}
	}
}

func TestADeviceGetsAnotherAddress(t *testing.T) {
	b := newBench(t)
	had := b.attach(mac(1), mac(1), radioA).Lease
	b.must(b.putDevice(registry.Device{ID: "phone", MACs: []openflow.MAC{mac(1)}, IP: ip(100)}))
	b.expect(b.handle(b.renewing(mac(1), had.IP), mac(1), radioA), dhcp.Refused)
	d := b.attach(mac(1), mac(1), radioA)
	if d.Lease.IP != ip(100) || !d.Attach || *d.Previous != *had.Attachment || d.Lease.Attachment == nil {
		t.Fatalf("%+v", d)
	}
}

func TestWhereRepliesGo(t *testing.T) {
	everybody := "ff:ff:ff:ff:ff:ff 255.255.255.255"
	flag := dhcpv4.WithBroadcast(true)
	cases := map[string]struct {
		message func(b *bench, a netip.Addr) *dhcpv4.DHCPv4
		at      network.PortRef
		want    string
	}{
		"to the new address": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 { return b.rebooting(mac(3), a) }, radioA, mac(1).String() + " 10.8.0.10"},
		"as it asked": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			m := b.rebooting(mac(3), a)
			flag(m)
			return m
		}, radioA, everybody},
		"to its address, whatever the flag": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			m := b.renewing(mac(3), a)
			flag(m)
			return m
		}, radioA, mac(1).String() + " 10.8.0.10"},
		"refused": {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.renewing(mac(3), ip(99)) }, radioA, everybody},
		"informed": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			return b.message(dhcpv4.MessageTypeInform, mac(3), dhcpv4.WithClientIP(a.AsSlice()))
		}, radioA, mac(1).String() + " 10.8.0.10"},
		"by a relay": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			m := b.rebooting(mac(3), a)
			dhcpv4.WithGatewayIP(net.IP{10, 99, 0, 1})(m)
			return m
		}, relay, mac(1).String() + " 10.99.0.1"},
		"refused by a relay": {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 {
			m := b.rebooting(mac(3), ip(99))
			dhcpv4.WithGatewayIP(net.IP{10, 99, 0, 1})(m)
			return m
		}, relay, mac(1).String() + " 10.99.0.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.must(b.putClass(registry.Class{Name: "default", Trigger: registry.TriggerOpen}))
			l := b.attach(mac(1), mac(1), radioA).Lease
			d := b.handle(c.message(b, l.IP), mac(1), c.at)
			if d.Reply == nil || where(d) != c.want || d.From != gateway {
				t.Fatalf("%s (%s): from %v to %s, want %s", d.Verdict, d.Reason, d.From, where(d), c.want)
			}
			if d.Verdict == dhcp.Refused && c.at == relay && !d.Reply.IsBroadcast() {
				t.Fatal("the relay is not told to broadcast the refusal")
			}
		})
	}
}

func TestRelayInformationComesBack(t *testing.T) {
	b := newBench(t)
	m := b.message(dhcpv4.MessageTypeDiscover, mac(1),
		dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("port 7")))))
	d := b.expect(b.handle(m, mac(1), radioA), dhcp.Offered)
	if got := d.Reply.Options.Get(dhcpv4.OptionRelayAgentInformation); !bytes.Equal(got, []byte("\x01\x06port 7")) {
		t.Fatalf("relay information %q", got)
	}
}

func TestReleaseAndDecline(t *testing.T) {
	release := func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
		return b.message(dhcpv4.MessageTypeRelease, mac(1), dhcpv4.WithClientIP(a.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway.AsSlice())))
	}
	decline := func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
		m := b.selecting(mac(1), a.AsSlice())
		m.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeDecline))
		return m
	}
	cases := map[string]struct {
		message func(*bench, netip.Addr) *dhcpv4.DHCPv4
		src     openflow.MAC
		at      network.PortRef
		want    dhcp.Verdict
	}{
		"release":                      {release, mac(1), radioA, dhcp.Released},
		"release of another address":   {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return release(b, ip(200)) }, mac(1), radioA, dhcp.Ignored},
		"release by the old interface": {release, mac(2), radioB, dhcp.Ignored},
		"release by a stranger":        {release, mac(77), radioA, dhcp.Denied},
		"release for another server": {func(b *bench, a netip.Addr) *dhcpv4.DHCPv4 {
			m := release(b, a)
			m.UpdateOption(dhcpv4.OptServerIdentifier(net.IP{9, 9, 9, 9}))
			return m
		}, mac(1), radioA, dhcp.Ignored},
		"release of nothing":              {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return b.message(dhcpv4.MessageTypeRelease, mac(1)) }, mac(1), radioA, dhcp.Ignored},
		"decline":                         {decline, mac(1), radioA, dhcp.Declined},
		"decline of another address":      {func(b *bench, _ netip.Addr) *dhcpv4.DHCPv4 { return decline(b, ip(200)) }, mac(1), radioA, dhcp.Ignored},
		"decline from where it is not":    {decline, mac(1), radioB, dhcp.Ignored},
		"decline through another's frame": {decline, mac(6), radioA, dhcp.Denied},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			l := b.attach(mac(1), mac(1), radioA).Lease
			d := b.expect(b.handle(c.message(b, l.IP), c.src, c.at), c.want)
			ends := c.want == dhcp.Released || c.want == dhcp.Declined
			if d.Reply != nil || d.Detach != ends || ends && d.Lease.IP != l.IP {
				t.Fatalf("%+v", d)
			}
			if now, ok := b.reg.Lease("phone"); (ok && !now.Released) == ends {
				t.Fatalf("lease %+v", now)
			}
			if again := b.attach(mac(1), mac(1), radioA).Lease; (again.IP == l.IP) == (c.want == dhcp.Declined) {
				t.Fatalf("had %v, got %v", l.IP, again.IP)
			}
			if !ends {
				return
			}
			b.now = b.now.Add(time.Second)
			if d := b.handle(c.message(b, ip(99)), c.src, c.at); d.Verdict != dhcp.Ignored {
				t.Fatalf("giving up what it does not have: %s", d.Verdict)
			}
		})
	}
}

func TestInform(t *testing.T) {
	b := newBench(t)
	l := b.attach(mac(1), mac(1), radioA).Lease
	ask := func(a netip.Addr) dhcp.Decision {
		return b.handle(b.message(dhcpv4.MessageTypeInform, mac(1), dhcpv4.WithClientIP(a.AsSlice())), mac(1), backyard)
	}
	d := b.expect(ask(l.IP), dhcp.Informed)
	r := d.Reply
	if r.MessageType() != dhcpv4.MessageTypeAck || !r.YourIPAddr.IsUnspecified() || r.IPAddressLeaseTime(0) != 0 || r.DomainName() != "mobile.example" {
		t.Fatal(r.Summary())
	}
	if d.Attach {
		t.Fatal("a question has moved the device")
	}
	b.expect(ask(netip.MustParseAddr("10.99.0.1")), dhcp.Ignored)
}

// TestInformWithoutALease checks that a client which has its address by other means gets the
// parameters, by unicast and without address and lease times (RFC 2131, section 4.3.5). A host that
// is no device gets them where unknown clients are served, and does not become one.
func TestInformWithoutALease(t *testing.T) {
	b := newBench(t)
	inform := func(n byte) dhcp.Decision {
		return b.handle(b.message(dhcpv4.MessageTypeInform, mac(n), dhcpv4.WithClientIP(ip(99).AsSlice()), dhcpv4.WithBroadcast(true)), mac(n), backyard)
	}
	check := func(d dhcp.Decision, n byte) {
		t.Helper()
		r := d.Reply
		if r == nil || r.MessageType() != dhcpv4.MessageTypeAck || !r.YourIPAddr.IsUnspecified() || r.DomainName() != "mobile.example" || len(r.Router()) != 1 {
			t.Fatalf("%s (%s): %v", d.Verdict, d.Reason, r)
		}
		for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionIPAddressLeaseTime, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue} {
			if r.Options.Has(code) {
				t.Errorf("the answer has option %v", code)
			}
		}
		if where(d) != mac(n).String()+" "+ip(99).String() || d.Attach || d.Lease.IP.IsValid() {
			t.Errorf("to %s, attach %v, lease %+v", where(d), d.Attach, d.Lease)
		}
	}
	check(b.expect(inform(1), dhcp.Informed), 1)
	b.expect(inform(50), dhcp.Unknown)
	p, _ := b.reg.Pool("main")
	p.Learn = true
	b.must(b.putPool(p))
	devices := len(b.reg.Devices())
	check(b.expect(inform(50), dhcp.Informed), 50)
	if n := len(b.reg.Devices()); n != devices {
		t.Errorf("%d devices, before %d", n, devices)
	}
}

func TestPoolsRunOut(t *testing.T) {
	b := newBench(t, func(p *registry.Pool) { p.Learn = true })
	for n, at := range []network.PortRef{radioA, radioB, backyard} {
		m := mac(20 + byte(n))
		b.attach(m, m, at)
		// A port's share of three addresses is one.
		more := mac(30 + byte(n))
		b.expect(b.handle(b.message(dhcpv4.MessageTypeDiscover, more), more, at), dhcp.Exhausted)
		b.expect(b.handle(b.message(dhcpv4.MessageTypeRequest, more, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip(12).AsSlice()))), more, at), dhcp.Exhausted)
	}
	d := b.expect(b.handle(b.message(dhcpv4.MessageTypeDiscover, mac(30)), mac(30), backyard), dhcp.Exhausted)
	if d.Reply != nil || d.Err == nil {
		t.Fatalf("%+v", d)
	}
	// Bound devices are not limited.
	b.attach(mac(6), mac(6), backyard)
}

func TestStrangers(t *testing.T) {
	b := newBench(t)
	discover := func(n byte) *dhcpv4.DHCPv4 { return b.message(dhcpv4.MessageTypeDiscover, mac(n)) }
	b.expect(b.handle(discover(50), mac(50), radioA), dhcp.Unknown)
	p, _ := b.reg.Pool("main")
	p.Learn = true
	b.must(b.putPool(p))

	ask := dhcp.Request{Message: discover(50), Src: mac(50), At: radioA, Time: b.now, AskFirst: true}
	if d := b.expect(b.decide(ask), dhcp.Unknown); d.Reply != nil || len(b.reg.Devices()) != 3 {
		t.Fatalf("a device that a neighbour may know was learned: %+v", d)
	}
	b.expect(b.handle(discover(50), mac(51), radioA), dhcp.Unknown)
	b.expect(b.handle(b.message(dhcpv4.MessageTypeInform, mac(50)), mac(50), radioA), dhcp.Ignored)
	if d := b.attach(mac(50), mac(50), backyard); d.Device.ID != "mac-020000000032" || !d.Attach {
		t.Fatalf("learned %+v", d)
	}
	// Its message does not decide where it may go: it stays, unless the port is listed.
	l, _ := b.reg.Lease("mac-020000000032")
	b.expect(b.handle(b.rebooting(mac(50), l.IP), mac(50), relay), dhcp.Denied)
	b.expect(b.handle(b.rebooting(mac(50), l.IP), mac(50), radioB), dhcp.Granted)
	// A client with a lease of another network is told so.
	b.expect(b.handle(b.rebooting(mac(52), netip.MustParseAddr("192.168.0.9")), mac(52), radioA), dhcp.Refused)
}

func TestVisitorsAreToldOfTheirHome(t *testing.T) {
	b := newBench(t)
	router := netip.MustParseAddr("10.9.0.1")
	b.must(b.putPool(registry.Pool{
		Name: "east", Home: "east", Prefix: netip.MustParsePrefix("10.9.0.0/16"), Gateway: router, LeaseTime: time.Minute,
	}))
	abroad := netip.MustParseAddr("10.9.3.4")
	d := registry.Device{ID: "bus@east", MACs: []openflow.MAC{mac(60)}, Home: "east", Pool: "east"}
	b.must(b.reg.Adopt(b.ctx, d, abroad))
	q := dhcp.Request{Message: b.rebooting(mac(60), abroad), Src: mac(60), At: backyard, Time: b.now}
	b.expect(b.decide(q), dhcp.Denied)
	q.Trusted = true
	a := b.expect(b.decide(q), dhcp.Granted)
	if a.Lease.IP != abroad || !a.Reply.Router()[0].Equal(router.AsSlice()) || a.From != router {
		t.Fatalf("%+v", a)
	}
	d.ID, d.MACs, d.Pool = "tram@east", []openflow.MAC{mac(61)}, ""
	b.must(b.reg.Adopt(b.ctx, d, netip.MustParseAddr("10.9.3.5")))
	b.expect(b.handle(b.message(dhcpv4.MessageTypeDiscover, mac(61)), mac(61), radioA), dhcp.Ignored)
}

// A granted lease is valid when the decision is committed, not before.
func TestADecisionIsCommitted(t *testing.T) {
	b := newBench(t)
	d := b.expect(b.Handle(b.ctx, dhcp.Request{Message: b.rebooting(mac(1), ip(12)), Src: mac(1), At: radioA, Time: b.now}), dhcp.Granted)
	if l, ok := b.reg.Lease("phone"); ok {
		t.Fatalf("lease %+v before it was committed", l)
	}
	for range 2 { // a second commit changes nothing
		b.must(d.Commit(b.ctx))
	}
	if l, _ := b.reg.Lease("phone"); l.IP != ip(12) || l.Attachment.At != radioA {
		t.Fatalf("lease %+v", l)
	}
}

func TestALeaseThatCannotBeWritten(t *testing.T) {
	b := newBench(t)
	b.must(b.store.Close())
	d := b.expect(b.handle(b.rebooting(mac(1), ip(12)), mac(1), radioA), dhcp.Failed)
	if d.Reply != nil || d.Attach || d.Err == nil {
		t.Fatalf("%+v", d)
	}
}
