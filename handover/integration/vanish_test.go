package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/lab"
)

// TestDeviceVanishes has devices go silent in the middle of everything: after the
// offer, after asking to move, and after a place was prepared for them.
func TestDeviceVanishes(t *testing.T) {
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/seamless", plugin.ClassSpec{Policy: "seamless", Trigger: "open"})
	ghost := newPhone(2, 1)
	w.register("open", ghost)
	if _, err := ghost.ask(t.Context(), radios[0], ghost.macs[0], ghost.message(dhcpv4.MessageTypeDiscover, ghost.macs[0]), dhcpv4.MessageTypeOffer); err != nil {
		t.Fatal(err)
	}
	p := victim(t, w, radios, "seamless")
	// It asks at the new place and is gone before the answer comes: the network
	// serves it there, and leads its packets back when it comes back.
	if err := w.lab.SetLink(t.Context(), radios[2].link, false); err != nil {
		t.Fatal(err)
	}
	if err := w.lab.SetLink(t.Context(), radios[2].link, true); err != nil {
		t.Fatal(err)
	}
	w.eventually("the port is up again", func() bool {
		_, err := radios[2].ask(t.Context(), p.macs[2], p.message(dhcpv4.MessageTypeDiscover, p.macs[2]), 300*time.Millisecond)
		return err == nil
	})
	if err := radios[2].tell(p.macs[2], p.reboot(p.macs[2])); err != nil {
		t.Fatal(err)
	}
	if err := w.lab.SetLink(t.Context(), radios[2].link, false); err != nil {
		t.Fatal(err)
	}
	w.eventually("it comes back and is served", func() bool {
		err := p.move(t.Context(), radios[0], p.macs[0])
		return err == nil && slices.Equal(w.delivered(radios, p.ip), []string{place(0, p.macs[0])})
	})
	w.eventually("nothing is left of the place where it never was", func() bool { return !w.anyBicast([]*phone{p}) })
	w.compareRules()
	w.leaked()
}

// TestEdgeDisconnects cuts edges off from the controller while devices come and
// go. Who moves away is served at once; what is left at the edge goes when it is
// back.
func TestEdgeDisconnects(t *testing.T) {
	w, radios := crowd(t, lab.MobilityOptions{})
	phones := newPhones(1, 20, 4)
	w.register("open", phones...)
	for _, p := range phones {
		if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(name string, up bool) {
		if err := w.lab.SetLink(t.Context(), "control-"+name, up); err != nil {
			t.Fatal(err)
		}
	}
	cut("edge1", false) // the controller does not know it yet
	for _, p := range phones[:10] {
		w.eventually("a device leaves an edge that is cut off", func() bool {
			return p.move(t.Context(), radios[1], p.macs[1]) == nil
		})
		w.servedAt(radios, p.ip, place(1, p.macs[1]))
	}
	cut("edge1", true)
	// Now the edge where they go is cut off while they ask.
	for n, p := range phones[10:] {
		if n == 3 {
			cut("edge3", false)
		}
		if n == 6 {
			cut("edge3", true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_ = p.move(ctx, radios[2], p.macs[2]) // may be in vain: it asks again, as clients do
		cancel()
	}
	for _, p := range phones[10:] {
		w.eventually("it is served there in the end", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return p.move(ctx, radios[2], p.macs[2]) == nil
		})
		w.servedAt(radios, p.ip, place(2, p.macs[2]))
	}
	w.eventually("no rule of before is left at the edge that was cut off", func() bool {
		for _, f := range w.inSwitches() {
			if ip, ok := fieldOf(f.match, "nw_dst="); ok && f.sw == radios[0].at().Switch.String() && slices.ContainsFunc(phones, func(p *phone) bool { return p.ip.String() == ip }) {
				return false
			}
		}
		return true
	})
	w.compareRules()
	w.leaked()
}
