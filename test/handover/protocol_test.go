package handover

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
)

// crowd returns a world whose only device has an interface at each of four edges, by which a test
// simulates phones.
func crowd(t *testing.T, o lab.MobilityOptions) (*world, []*radio) {
	t.Helper()
	o.Interfaces = 4
	w := newWorld(t, o)
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	return w, w.radios("dev1", 4)
}

// TestMessages sends every DHCP message in every state of RFC 2131, valid and invalid, and checks
// the answers.
func TestMessages(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	p := newPhone(1, 2)
	w.register("open", p)
	home, other := p.macs[0], p.macs[1]
	if err := p.join(t.Context(), radios[0], home); err != nil {
		t.Fatal(err)
	}
	first := p.ip
	if !w.domain.Prefix.Contains(first) || p.router != w.domain.GatewayAddr || p.server.String() != w.poolSpec().Server {
		t.Errorf("got %v, router %v, server %v", p.ip, p.router, p.server)
	}
	other3 := p.message(dhcpv4.MessageTypeRequest, home, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 20, 77, 77})))
	foreign := p.message(dhcpv4.MessageTypeRequest, home, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{172, 16, 0, 9})))
	selectsOther := p.message(dhcpv4.MessageTypeRequest, home,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(first.AsSlice())), dhcpv4.WithOption(dhcpv4.OptServerIdentifier([]byte{10, 20, 0, 99})))
	inform := p.message(dhcpv4.MessageTypeInform, home)
	inform.ClientIPAddr = first.AsSlice()
	for _, c := range []struct {
		name string
		m    *dhcpv4.DHCPv4
		want dhcpv4.MessageType
	}{
		{"renewing", p.renew(home), dhcpv4.MessageTypeAck},
		{"init-reboot", p.reboot(home), dhcpv4.MessageTypeAck},
		{"init-reboot with somebody else's address", other3, dhcpv4.MessageTypeNak},
		{"init-reboot with an address of elsewhere", foreign, dhcpv4.MessageTypeNak},
		{"discover again", p.message(dhcpv4.MessageTypeDiscover, home), dhcpv4.MessageTypeOffer},
		{"inform", inform, dhcpv4.MessageTypeAck},
		{"selecting another server", selectsOther, dhcpv4.MessageTypeNone},
	} {
		wait := answerWithin
		if c.want == dhcpv4.MessageTypeNone {
			wait = refusedWithin
		}
		reply, err := radios[0].ask(t.Context(), home, c.m, wait)
		switch {
		case c.want == dhcpv4.MessageTypeNone:
			if !errors.Is(err, errSilence) {
				t.Errorf("%s was answered by %v", c.name, reply)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case reply.MessageType() != c.want:
			t.Errorf("%s was answered by %v, want %v", c.name, reply.MessageType(), c.want)
		case c.want == dhcpv4.MessageTypeOffer || c.name == "renewing":
			if ip, _ := netip.AddrFromSlice(reply.YourIPAddr.To4()); ip != first {
				t.Errorf("%s gave %v, the device has %v", c.name, ip, first)
			}
		}
	}
	// The same address at every place, whatever interface asks there.
	if err := p.move(t.Context(), radios[2], other); err != nil {
		t.Fatal(err)
	}
	if l, ok := w.lease(p.id); !ok || l.IP != first {
		t.Errorf("the lease is %+v", l)
	}
	if n := len(w.leases()); n != 1 {
		t.Errorf("%d leases for one device", n)
	}
	// Released and declined addresses.
	release := p.message(dhcpv4.MessageTypeRelease, other, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(p.server.AsSlice())))
	release.ClientIPAddr = first.AsSlice()
	if err := radios[2].tell(other, release); err != nil {
		t.Fatal(err)
	}
	w.eventually("the rules of a released address are gone", func() bool { return len(w.rulesOf(first)) == 0 })
	if err := p.join(t.Context(), radios[1], home); err != nil {
		t.Fatal(err)
	}
	if p.ip != first {
		t.Errorf("after a release it got %v, before it had %v", p.ip, first)
	}
	decline := p.message(dhcpv4.MessageTypeDecline, home,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(p.server.AsSlice())), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(first.AsSlice())))
	if err := radios[1].tell(home, decline); err != nil {
		t.Fatal(err)
	}
	w.eventually("the rules of a declined address are gone", func() bool { return len(w.rulesOf(first)) == 0 })
	if err := p.join(t.Context(), radios[1], home); err != nil {
		t.Fatal(err)
	}
	if p.ip == first {
		t.Error("a declined address was given again at once")
	}
	w.compareRules()
}

// TestNeighbours asks by ARP for all addresses from all places: devices get the gateway's and the
// server's address at every edge, the gateway gets the device's home MAC.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	p := newPhone(1, 4)
	w.register("open", p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	gateway := hostMAC(w.lab.Host(w.domain.Gateway), 0)
	var serverMAC openflow.MAC
	for i, r := range radios {
		if i > 0 {
			if err := p.move(t.Context(), r, p.macs[i]); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.askARP(p.macs[i], p.ip, p.router, waitLimit); len(got) != 1 || got[0] != gateway {
			t.Errorf("edge %d: the gateway is at %v, want %v once", i+1, got, gateway)
		}
		got := r.askARP(p.macs[i], p.ip, p.server, waitLimit)
		if len(got) != 1 || serverMAC != (openflow.MAC{}) && got[0] != serverMAC {
			t.Errorf("edge %d: the DHCP server is at %v, elsewhere at %v", i+1, got, serverMAC)
		} else {
			serverMAC = got[0]
		}
		w.run(w.domain.Gateway, "ip", "neigh", "flush", "all")
		w.servedAt(radios, p.ip, place(i, p.macs[i]))
		if out := w.run(w.domain.Gateway, "ip", "neigh", "show", p.ip.String()); !contains(out, p.macs[0].String()) {
			t.Errorf("the gateway has %q, the home MAC is %v", out, p.macs[0])
		}
		if mac, ok := w.sends(p, r, p.macs[i], waitLimit); !ok || mac != p.macs[0] {
			t.Errorf("edge %d: the gateway saw %v, %v; the home MAC is %v", i+1, mac, ok, p.macs[0])
		}
	}
}
