package handover

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/dhcp"
)

// refusedWithin is how long a test waits for an answer that must not come.
const refusedWithin = 700 * time.Millisecond

// victim returns a phone that has joined by the first radio.
func victim(t *testing.T, w *world, radios []*radio, class string) *phone {
	t.Helper()
	p := newPhone(1, 4)
	w.register(class, p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	return p
}

// unmoved checks that an attempt to move a phone, which is at the first radio, was not answered,
// and that its packets still arrive where it is.
func unmoved(t *testing.T, w *world, radios []*radio, p *phone, what string, r *radio, mac openflow.MAC, m *dhcpv4.DHCPv4) {
	t.Helper()
	// The phone is answered before the rules of its old place are removed.
	w.eventually("what brought the device here is over", func() bool { return w.done(p.id, radios[0]) })
	before := w.rulesBySwitch()
	if reply, err := r.ask(t.Context(), mac, m, refusedWithin); !errors.Is(err, errSilence) {
		t.Errorf("%s was answered: %v, %v", what, reply, err)
	}
	if d := differing(before, w.rulesBySwitch()); len(d) > 0 {
		t.Errorf("%s changed rules in %v", what, d)
	}
	w.servedAt(radios, p.ip, place(0, p.macs[0]))
}

// TestSpoofedRequests sends requests of every kind from strangers for a device's address, at a
// port where the device may not be.
func TestSpoofedRequests(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/bound", handover.ClassSpec{Policy: "saving", Trigger: "ports", Ports: []string{radios[0].at().String(), radios[1].at().String()}})
	p := victim(t, w, radios, "bound")
	mac := p.macs[0]
	release := p.message(dhcpv4.MessageTypeRelease, mac, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(p.server.AsSlice())))
	release.ClientIPAddr = p.ip.AsSlice()
	selecting := p.reboot(mac)
	selecting.UpdateOption(dhcpv4.OptServerIdentifier(p.server.AsSlice()))
	decline := p.message(dhcpv4.MessageTypeDecline, mac,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(p.server.AsSlice())), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(p.ip.AsSlice())))
	for _, c := range []struct {
		what string
		m    *dhcpv4.DHCPv4
	}{
		{"INIT-REBOOT", p.reboot(mac)},
		{"RENEWING", p.renew(mac)},
		{"SELECTING", selecting},
		{"RELEASE", release},
		{"DECLINE", decline},
	} {
		unmoved(t, w, radios, p, c.what, radios[2], mac, c.m)
	}
	// chaddr of the victim in a frame of the stranger's own, and the reverse.
	stranger := openflow.MAC{0x06, 0xbb, 0, 0, 0, 1}
	unmoved(t, w, radios, p, "chaddr of the device", radios[2], stranger, p.reboot(mac))
	unmoved(t, w, radios, p, "eth_src of the device", radios[2], mac, p.reboot(stranger))
	unmoved(t, w, radios, p, "chaddr of the device, at a port where it may be", radios[1], stranger, p.reboot(mac))
	// Packets with the device's address from elsewhere are dropped.
	for _, from := range []openflow.MAC{mac, stranger} {
		if seen, ok := w.sends(p, radios[2], from, refusedWithin); ok {
			t.Errorf("a stranger sends with the device's address, seen with %v", seen)
		}
	}
	if seen, ok := w.sends(p, radios[0], mac, waitLimit); !ok || seen != mac {
		t.Errorf("the device itself sends, seen with %v: %v", seen, ok)
	}
	if l, ok := w.lease(p.id); !ok || l.IP != p.ip || l.released() {
		t.Errorf("the lease is %+v", l)
	}
	if !contains(w.log.String(), "refused") {
		t.Error("the log does not say that anything was refused")
	}
	if err := p.move(t.Context(), radios[1], p.macs[1]); err != nil {
		t.Errorf("where it may be, it may not move: %v", err)
	}
}

// TestSignedRequests moves a device that has a key: only by its signed requests, and only once by
// each.
func TestSignedRequests(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	p := newPhone(1, 4)
	w.put("devices/"+p.id, handover.DeviceSpec{MACs: p.macTexts(), Pool: pool, Key: hex.EncodeToString(key)})
	sign := func(m *dhcpv4.DHCPv4, src openflow.MAC, key []byte, at time.Time) *dhcpv4.DHCPv4 {
		if err := dhcp.Sign(key, m, src, at); err != nil {
			t.Fatal(err)
		}
		return m
	}
	now := time.Now()
	mac := p.macs[0]
	offer, err := p.ask(t.Context(), radios[0], mac, sign(p.message(dhcpv4.MessageTypeDiscover, mac), mac, key, now), dhcpv4.MessageTypeOffer)
	if err != nil {
		t.Fatal(err)
	}
	request := p.message(dhcpv4.MessageTypeRequest, mac,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))
	ack, err := p.ask(t.Context(), radios[0], mac, sign(request, mac, key, time.Now()), dhcpv4.MessageTypeAck)
	if err != nil {
		t.Fatal(err)
	}
	p.learn(ack)

	there := p.macs[2]
	otherKey := bytes.Repeat([]byte{1}, len(key))
	changed := sign(p.reboot(there), there, key, time.Now())
	changed.UpdateOption(dhcpv4.OptRequestedIPAddress([]byte{10, 20, 1, 99}))
	for _, c := range []struct {
		what string
		m    *dhcpv4.DHCPv4
	}{
		{"no signature", p.reboot(there)},
		{"another's key", sign(p.reboot(there), there, otherKey, time.Now())},
		{"a time long ago", sign(p.reboot(there), there, key, time.Now().Add(-time.Minute))},
		{"a time to come", sign(p.reboot(there), there, key, time.Now().Add(time.Minute))},
		{"signed for another interface", sign(p.reboot(there), p.macs[3], key, time.Now())},
		{"changed after signing", changed},
		{"a used signature", request},
	} {
		unmoved(t, w, radios, p, c.what, radios[2], there, c.m)
	}
	move := sign(p.reboot(there), there, key, time.Now())
	if _, err := p.ask(t.Context(), radios[2], there, move, dhcpv4.MessageTypeAck); err != nil {
		t.Fatalf("a signed request was not granted: %v", err)
	}
	w.servedAt(radios, p.ip, place(2, there))
	// An eavesdropper replays the request elsewhere, when the device is back.
	home := sign(p.reboot(mac), mac, key, time.Now())
	if _, err := p.ask(t.Context(), radios[0], mac, home, dhcpv4.MessageTypeAck); err != nil {
		t.Fatal(err)
	}
	unmoved(t, w, radios, p, "a replay", radios[2], there, move)
	unmoved(t, w, radios, p, "a replay at another port", radios[3], there, move)
}

// TestExhaustedPool has one device more than addresses. It gets one as soon as one is free.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	spec := w.poolSpec()
	spec.First, spec.Last = "10.20.1.1", "10.20.1.2"
	w.put("pools/"+pool, spec)
	phones := newPhones(1, 3, 1)
	w.register("open", phones...)
	joinAll(t, radios, phones[:2])
	late := phones[2]
	if err := late.join(shortContext(t), radios[2], late.macs[0]); err == nil {
		t.Fatalf("a third device got %v of a pool of two", late.ip)
	}
	if phones[0].ip == phones[1].ip {
		t.Errorf("both have %v", phones[0].ip)
	}
	w.compareRules()
	gone := phones[0]
	release := gone.message(dhcpv4.MessageTypeRelease, gone.macs[0], dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gone.server.AsSlice())))
	release.ClientIPAddr = gone.ip.AsSlice()
	if err := radios[0].tell(gone.macs[0], release); err != nil {
		t.Fatal(err)
	}
	w.eventually("the lease is released", func() bool { l, ok := w.lease(gone.id); return !ok || l.released() })
	w.eventually("a released address has rested and is given again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // then it asks again
		defer cancel()
		return late.join(ctx, radios[2], late.macs[0]) == nil
	})
	if late.ip != gone.ip {
		t.Errorf("it got %v, free was %v", late.ip, gone.ip)
	}
	w.compareRules()
}

// TestTwoClaimOneMAC sends requests with the same MAC at two ports in turns. The class decides
// which of them has the address; it is never both, and the log reports it.
func TestTwoClaimOneMAC(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	p := victim(t, w, radios, "open")
	mac := p.macs[0]
	for n := range 6 {
		to := []int{2, 0}[n%2]
		if err := p.move(t.Context(), radios[to], mac); err != nil {
			t.Fatal(err)
		}
		w.servedAt(radios, p.ip, place(to, mac))
	}
	if n := len(w.leases()); n != 1 {
		t.Errorf("%d leases", n)
	}
	w.eventually("the log tells of two ports", func() bool { return contains(w.log.String(), "at-two-ports") || contains(w.log.String(), "two ports") })
	w.compareRules()
}
