package handover

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/lab"
)

// TestSeveralRoots lets packets come in by either border port, whichever is nearest to the device.
func TestSeveralRoots(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{Roots: 2})
	p := newPhone(1, 4)
	w.register("open", p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	for i, r := range radios {
		if i > 0 {
			if err := p.move(t.Context(), r, p.macs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, via := range []string{"192.0.2.1", "198.51.100.1"} {
			w.run(w.domain.Server, "ip", "route", "replace", "default", "via", via)
			w.servedAt(radios, p.ip, place(i, p.macs[i]))
		}
	}
	if err := w.lab.SetLink(t.Context(), "root-core1", false); err != nil {
		t.Fatal(err)
	}
	if err := p.move(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	w.eventually("packets take the way that is left", func() bool {
		return slices.Equal(w.delivered(radios, p.ip), []string{place(0, p.macs[0])})
	})
}
