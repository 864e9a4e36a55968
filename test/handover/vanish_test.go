package handover

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestDeviceVanishes has devices stop sending in the middle of an operation: after the offer,
// after asking to move, and after a place was prepared for them.
func TestDeviceVanishes(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open"})
	ghost := newPhone(2, 1)
	w.register("open", ghost)
	if _, err := ghost.ask(t.Context(), radios[0], ghost.macs[0], ghost.message(dhcpv4.MessageTypeDiscover, ghost.macs[0]), dhcpv4.MessageTypeOffer); err != nil {
		t.Fatal(err)
	}
	p := victim(t, w, radios, "seamless")
	// It asks at the new place and is gone before the answer arrives: the network serves it there,
	// and leads its packets back when it comes back.
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

// TestEdgeDisconnects disconnects edges from the controller while devices come and go. A device
// that moves away is served at once; its rules at the disconnected edge are removed when the edge
// is back.
func TestEdgeDisconnects(t *testing.T) {
	t.Parallel()
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
	// Now the edge to which they go is disconnected while they ask.
	for n, p := range phones[10:] {
		if n == 3 {
			cut("edge3", false)
		}
		if n == 6 {
			cut("edge3", true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_ = p.move(ctx, radios[2], p.macs[2]) // may fail: it asks again, as clients do
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

// TestPreparedPlace prepares places by the API: for a device that does not come, whose place is
// given up in time; for one that comes, which then has nothing to wait for; and cancels one.
func TestPreparedPlace(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "100ms"})
	p := victim(t, w, radios, "seamless")
	alone := w.rulesBySwitch()
	served := func(where ...string) {
		t.Helper()
		w.eventually("packets come out where they should", func() bool { return slices.Equal(w.delivered(radios, p.ip), where) })
	}
	here, there := place(0, p.macs[0]), place(3, p.macs[3])
	prepare := func(timeout string) {
		t.Helper()
		spec := handover.PlaceSpec{Port: radios[3].at().String(), MAC: p.macs[3].String(), Timeout: timeout}
		if err := w.do(http.MethodPost, "devices/"+p.id+"/prepare", spec, nil); err != nil {
			t.Fatal(problemText(err))
		}
	}
	prepare("5s") // it never comes
	served(here, there)
	served(here)
	w.eventually("the rules are as they were", func() bool { return len(differing(alone, w.rulesBySwitch())) == 0 })

	prepare("1m")
	served(here, there)
	if err := w.do(http.MethodDelete, "devices/"+p.id+"/prepare", nil, nil); err != nil {
		t.Fatal(problemText(err))
	}
	served(here)

	prepare("1m")
	served(here, there)
	prepared := w.rulesBySwitch()
	if err := p.move(t.Context(), radios[3], p.macs[3]); err != nil {
		t.Fatal(err)
	}
	if d := differing(prepared, w.rulesBySwitch()); len(d) > 0 {
		t.Logf("its coming has changed rules in %v before the overlap was over", d)
	}
	served(there)
	w.eventually("the handover is over", func() bool { return w.done(p.id, radios[3]) })
	if rec := w.handovers(p.id, 1)[0]; !rec.Prepared || !rec.Bicast {
		t.Errorf("the record does not tell that it was prepared: %+v", rec)
	}
	for what, spec := range map[string]handover.PlaceSpec{
		"a port that leads to a switch": {Port: w.port("root-core1").String()},
		"a border port":                 {Port: w.port("uplink").String()},
		"a port of no switch":           {Port: "00000000000000ff/1"},
		"another's MAC":                 {Port: radios[1].at().String(), MAC: "06:cc:00:00:00:01"},
	} {
		if err := w.do(http.MethodPost, "devices/"+p.id+"/prepare", spec, nil); err == nil {
			t.Errorf("%s was prepared", what)
		}
	}
	w.compareRules()
	w.leaked()
}
