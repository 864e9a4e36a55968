package integration

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/lab"
)

// TestVehicle drives a device along a road of four cells and reports ten times a
// second where it is. Each cell is prepared before it comes there, at the interface
// that it uses there, and nothing is lost.
func TestVehicle(t *testing.T) {
	const speed, spacing, radius = 50.0, 100.0, 60.0 // metres, and metres per second
	w := makeWorld(t, lab.MobilityOptions{Interfaces: 4})
	w.extra = "  coverage:\n"
	for i := range 4 {
		w.extra += fmt.Sprintf("    cell%d: {port: %v, interface: %d, x: %v, y: 0, radius: %v}\n",
			i+1, w.port(fmt.Sprintf("dev1-eth%d", i)), i+1, spacing*float64(i), radius)
	}
	w.begin()
	radios := w.radios("dev1", 4)
	w.put("classes/vehicles", plugin.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "100ms"})
	p := victim(t, w, radios, "vehicles")
	s := w.streamToRadios(radios, netip.AddrPortFrom(p.ip, 5000), 1000)
	w.eventually("packets arrive", func() bool { return s.count() > 100 })

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	start, at := time.Now(), 0
	for x := 0.0; x < 3*spacing; x = speed * time.Since(start).Seconds() {
		var heard []plugin.PositionInfo
		reports := []plugin.PositionSpec{{Device: p.id, X: x, Speed: speed, Heading: 90}}
		if err := w.do(http.MethodPost, "positions", reports, &heard); err != nil {
			t.Fatal(problemText(err))
		}
		// Half-way to the next cell it finds the next attachment point better.
		if next := int((x + spacing/2) / spacing); next > at && next < len(radios) {
			at = next
			if err := p.move(t.Context(), radios[at], p.macs[at]); err != nil {
				t.Fatal(err)
			}
		}
		<-tick.C
	}
	r := s.stop()
	t.Logf("%v", r)
	requireOnce(t, r)
	moves := 0
	for _, rec := range w.handovers(p.id, 100) {
		if rec.Kind != plugin.KindMove {
			continue
		}
		moves++
		if !rec.Prepared || !rec.Bicast {
			t.Errorf("it came to %v unexpectedly: %+v", rec.To, rec)
		}
	}
	if moves != 3 {
		t.Errorf("%d moves, it passed into 3 cells", moves)
	}
	w.servedAt(radios, p.ip, place(3, p.macs[3]))
	w.compareRules()
	w.leaked()
}
