package dhcp_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// TestTriggers checks what may move a device, and what may not.
func TestTriggers(t *testing.T) {
	cases := map[string]struct {
		device  string
		trigger registry.Trigger
		signed  bool
		at      network.PortRef
		want    dhcp.Verdict
	}{
		"open":                      {"phone", registry.TriggerOpen, false, backyard, dhcp.Granted},
		"ports, listed":             {"phone", registry.TriggerPorts, false, radioB, dhcp.Granted},
		"ports, not listed":         {"phone", registry.TriggerPorts, false, backyard, dhcp.Denied},
		"ports, signed for nothing": {"car", registry.TriggerPorts, true, backyard, dhcp.Denied},
		"ports, the device's own":   {"car", registry.TriggerPorts, false, relay, dhcp.Granted},
		"signed":                    {"car", registry.TriggerSigned, true, backyard, dhcp.Granted},
		"signed, but it is not":     {"car", registry.TriggerSigned, false, radioB, dhcp.Denied},
		"signed, without a key":     {"phone", registry.TriggerSigned, true, radioB, dhcp.Denied},
		"default with a key":        {"car", "", false, radioB, dhcp.Denied},
		"default with a key, used":  {"car", "", true, backyard, dhcp.Granted},
		"default without a key":     {"phone", "", false, radioB, dhcp.Granted},
		"default, not listed":       {"phone", "", false, backyard, dhcp.Denied},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.must(b.putDevice(registry.Device{ID: "car", MACs: []openflow.MAC{mac(4), mac(5)}, Key: key, Ports: []network.PortRef{relay}}))
			open := registry.Class{Name: "default", Trigger: registry.TriggerOpen}
			b.must(b.putClass(open))
			m := map[string]openflow.MAC{"phone": mac(1), "car": mac(4)}[c.device]
			was := b.attach(m, m, radioA).Lease
			b.must(b.putClass(registry.Class{Name: "default", Trigger: c.trigger, Ports: []network.PortRef{radioA, radioB}}))

			for _, kind := range []*dhcpv4.DHCPv4{b.message(dhcpv4.MessageTypeDiscover, m), b.rebooting(m, was.IP)} {
				if c.signed {
					b.sign(kind, m)
				}
				want := c.want
				if want == dhcp.Granted && kind.MessageType() == dhcpv4.MessageTypeDiscover {
					want = dhcp.Offered
				}
				d := b.expect(b.handle(kind, m, c.at), want)
				if want == dhcp.Denied && (d.Reply != nil || d.Attach || d.Reason == "" || d.Device.ID != c.device) {
					t.Fatalf("%+v", d)
				}
			}
			now, _ := b.reg.Lease(c.device)
			if moved := now.Attachment.At == c.at; moved != (c.want == dhcp.Granted) {
				t.Fatalf("it is at %v", now.Attachment.At)
			}
			// At its place it renews by an ordinary message.
			b.expect(b.handle(b.renewing(m, was.IP), m, now.Attachment.At), dhcp.Granted)
		})
	}
}

// TestSpoofedRequests sends frames in which another host uses a device's addresses.
func TestSpoofedRequests(t *testing.T) {
	cases := map[string]struct {
		chaddr, src openflow.MAC
		at          network.PortRef
		relayed     bool
		want        dhcp.Verdict
		about       string
	}{
		"unknown source":                {mac(1), mac(77), radioA, false, dhcp.Denied, "phone"},
		"source of another device":      {mac(1), mac(6), radioA, false, dhcp.Denied, "phone"},
		"unknown client, known source":  {mac(77), mac(1), radioA, false, dhcp.Denied, "phone"},
		"group source":                  {mac(1), openflow.MAC{1}, radioA, false, dhcp.Denied, ""},
		"no source":                     {mac(1), openflow.MAC{}, radioA, false, dhcp.Denied, ""},
		"relay where none is":           {mac(1), mac(77), radioA, true, dhcp.Denied, ""},
		"relay":                         {mac(1), mac(77), relay, true, dhcp.Granted, "phone"},
		"relay's port, but not relayed": {mac(1), mac(77), relay, false, dhcp.Denied, "phone"},
		"own virtual interface":         {mac(3), mac(1), radioA, false, dhcp.Granted, "phone"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.must(b.putClass(registry.Class{Name: "default", Trigger: registry.TriggerOpen}))
			was := b.attach(mac(1), mac(1), radioB).Lease
			m := b.rebooting(c.chaddr, was.IP)
			if c.relayed {
				m.GatewayIPAddr = ip(9).AsSlice()
			}
			d := b.expect(b.handle(m, c.src, c.at), c.want)
			if d.Device.ID != c.about {
				t.Fatalf("about %q, want %q: %s", d.Device.ID, c.about, d.Reason)
			}
			now, _ := b.reg.Lease("phone")
			if (now.Attachment.At == c.at) != (c.want == dhcp.Granted) {
				t.Fatalf("it is at %v", now.Attachment.At)
			}
		})
	}
}

func TestSignaturesCoverWhatMatters(t *testing.T) {
	b := newBench(t)
	fresh := func() *dhcpv4.DHCPv4 { return b.sign(b.rebooting(mac(4), ip(10)), mac(5)) }
	if s, err := dhcp.Verify(key, fresh(), mac(5), b.now); err != nil || !s.Time.Equal(b.now) {
		t.Fatalf("%v, %v", s, err)
	}
	option := func(f func([]byte) []byte) func(*dhcpv4.DHCPv4) {
		return func(m *dhcpv4.DHCPv4) {
			code := dhcp.OptionSignature.Code()
			m.Options[code] = f(m.Options[code])
		}
	}
	for name, c := range map[string]struct {
		want  error
		spoil func(*dhcpv4.DHCPv4)
	}{
		"type":          {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeRelease)) }},
		"address":       {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.UpdateOption(dhcpv4.OptRequestedIPAddress(ip(11).AsSlice())) }},
		"server":        {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.UpdateOption(dhcpv4.OptServerIdentifier(ip(9).AsSlice())) }},
		"own address":   {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.ClientIPAddr = ip(11).AsSlice() }},
		"client":        {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr[5]++ }},
		"transaction":   {dhcp.ErrSignature, func(m *dhcpv4.DHCPv4) { m.TransactionID[0]++ }},
		"time":          {dhcp.ErrSignature, option(func(v []byte) []byte { v[8]++; return v })},
		"nonce":         {dhcp.ErrSignature, option(func(v []byte) []byte { v[9]++; return v })},
		"code":          {dhcp.ErrSignature, option(func(v []byte) []byte { v[56]++; return v })},
		"version":       {dhcp.ErrSignature, option(func(v []byte) []byte { v[0]++; return v })},
		"cut short":     {dhcp.ErrSignature, option(func(v []byte) []byte { return v[:56] })},
		"too long":      {dhcp.ErrSignature, option(func(v []byte) []byte { return append(v, 0) })},
		"empty":         {dhcp.ErrSignature, option(func([]byte) []byte { return nil })},
		"not signed":    {dhcp.ErrUnsigned, func(m *dhcpv4.DHCPv4) { delete(m.Options, dhcp.OptionSignature.Code()) }},
		"what does not": {nil, func(m *dhcpv4.DHCPv4) { m.NumSeconds = 7; m.SetBroadcast() }},
	} {
		t.Run(name, func(t *testing.T) {
			m := fresh()
			c.spoil(m)
			if _, err := dhcp.Verify(key, m, mac(5), b.now); !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
		})
	}
	other := []byte(strings.Repeat("x", 32))
	for name, err := range map[string]error{
		"source":    func() error { _, err := dhcp.Verify(key, fresh(), mac(4), b.now); return err }(),
		"key":       func() error { _, err := dhcp.Verify(other, fresh(), mac(5), b.now); return err }(),
		"short key": func() error { _, err := dhcp.Verify(key[:31], fresh(), mac(5), b.now); return err }(),
	} {
		if !errors.Is(err, dhcp.ErrSignature) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	if err := dhcp.Sign(key[:31], fresh(), mac(5), b.now); err == nil {
		t.Error("signed with a short key")
	}
}

// A signed request is valid only at the place for which it was made, as far as the device knows
// the place: by its interface, and by the server that it has chosen there. The device does not
// know the port.
func TestSignedRequestsAtAnotherPlace(t *testing.T) {
	b := newBench(t)
	b.expect(b.handle(b.sign(b.rebooting(mac(4), ip(10)), mac(4)), mac(4), radioA), dhcp.Granted)
	b.now = b.now.Add(time.Second)
	// Sent in another network, to a server there, and replayed here without the server.
	elsewhere := b.rebooting(mac(4), ip(10))
	elsewhere.UpdateOption(dhcpv4.OptServerIdentifier(ip(9).AsSlice()))
	b.sign(elsewhere, mac(4))
	delete(elsewhere.Options, dhcpv4.OptionServerIdentifier.Code())
	b.expect(b.handle(elsewhere, mac(4), radioB), dhcp.Denied)
	// Sent by one interface, and replayed as if by another.
	b.now = b.now.Add(time.Second)
	b.expect(b.handle(b.sign(b.rebooting(mac(4), ip(10)), mac(4)), mac(5), radioB), dhcp.Denied)
	// The remaining case: a copy that overtakes the device's own request is accepted in its place,
	// until the device asks again.
	b.now = b.now.Add(time.Second)
	m := b.sign(b.rebooting(mac(4), ip(10)), mac(4))
	b.expect(b.handle(m, mac(4), backyard), dhcp.Granted)
	b.now = b.now.Add(time.Second)
	b.expect(b.handle(b.sign(b.rebooting(mac(4), ip(10)), mac(4)), mac(4), radioA), dhcp.Granted)
	b.expect(b.handle(m, mac(4), backyard), dhcp.Denied)
}

func TestSignaturesAreGoodForAWhile(t *testing.T) {
	b := newBench(t)
	for off, good := range map[time.Duration]bool{
		-31 * time.Second: false, -30 * time.Second: true, 0: true, 30 * time.Second: true, 31 * time.Second: false,
	} {
		m := b.rebooting(mac(4), ip(10))
		b.must(dhcp.Sign(key, m, mac(4), b.now.Add(off)))
		if _, err := dhcp.Verify(key, m, mac(4), b.now); errors.Is(err, dhcp.ErrStale) == good {
			t.Errorf("off by %v: %v", off, err)
		}
	}
}

func TestSignaturesAreGoodOnce(t *testing.T) {
	b := newBench(t)
	m := b.sign(b.rebooting(mac(4), ip(10)), mac(4))
	b.expect(b.handle(m, mac(4), radioA), dhcp.Granted)
	// A request from one place cannot be replayed at another, now or after a restart of the
	// controller.
	b.expect(b.handle(m, mac(4), radioB), dhcp.Denied)
	b.start()
	b.expect(b.handle(m, mac(4), radioB), dhcp.Denied)
	// Nor one that the device signed without need.
	b.now = b.now.Add(time.Second)
	renewal := b.sign(b.renewing(mac(4), ip(10)), mac(4))
	b.expect(b.handle(renewal, mac(4), radioA), dhcp.Granted)
	b.expect(b.handle(renewal, mac(4), radioB), dhcp.Denied)
	// Nor one that it signed earlier and that arrived late.
	late := b.sign(b.rebooting(mac(4), ip(10)), mac(4))
	b.now = b.now.Add(time.Second)
	b.expect(b.handle(b.sign(b.rebooting(mac(4), ip(10)), mac(4)), mac(4), radioB), dhcp.Granted)
	b.expect(b.handle(late, mac(4), radioA), dhcp.Denied)

	b.now = b.now.Add(time.Second)
	m = b.sign(b.rebooting(mac(4), ip(10)), mac(4))
	car, _ := b.reg.Device("car")
	b.must(b.Verify(car, m, mac(4), b.now))
	if err := b.Verify(car, m, mac(4), b.now); !errors.Is(err, dhcp.ErrReplay) {
		t.Fatalf("verified twice: %v", err)
	}
}

// TestNoSignatureCountsTwice uses more signatures than are remembered, in any order.
func TestNoSignatureCountsTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		car, _ := b.reg.Device("car")
		used := map[*dhcpv4.DHCPv4]bool{}
		var sent []*dhcpv4.DHCPv4
		for range rapid.IntRange(1, 600).Draw(rt, "messages") {
			b.now = b.now.Add(time.Duration(rapid.IntRange(0, 80).Draw(rt, "pause")) * time.Millisecond)
			m := b.message(dhcpv4.MessageTypeDiscover, mac(4))
			b.must(dhcp.Sign(key, m, mac(4), b.now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(rt, "skew"))*time.Second)))
			sent = append(sent, m)
			again := rapid.SampledFrom(sent).Draw(rt, "again")
			for _, m := range []*dhcpv4.DHCPv4{m, again} {
				err := b.Verify(car, m, mac(4), b.now)
				if err == nil && used[m] {
					rt.Fatal("a signature counted twice")
				}
				used[m] = used[m] || err == nil
			}
		}
	})
}

func TestGuardForgets(t *testing.T) {
	b := newBench(t)
	car, _ := b.reg.Device("car")
	for range 1000 {
		b.now = b.now.Add(time.Millisecond)
		b.must(b.Verify(car, b.sign(b.message(dhcpv4.MessageTypeDiscover, mac(4)), mac(4)), mac(4), b.now))
	}
	if n := b.Remembered("car"); n != dhcp.MaxStamps {
		t.Fatalf("%d signatures remembered", n)
	}
	b.now = b.now.Add(2 * dhcp.Window)
	phone, _ := b.reg.Device("phone")
	phone.Key = key
	b.must(b.Verify(phone, b.sign(b.message(dhcpv4.MessageTypeDiscover, mac(1)), mac(1)), mac(1), b.now))
	if n := b.Remembered("car"); n != -1 {
		t.Fatalf("%d signatures remembered of a device that was quiet", n)
	}
}
