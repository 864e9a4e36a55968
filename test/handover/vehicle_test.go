package handover

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestVehicle drives a device along a road of four cells and reports its position ten times a
// second. Each cell is prepared before the device arrives, for the interface that it uses there.
func TestVehicle(t *testing.T) {
	t.Parallel()
	const speed, spacing, radius, step = 50.0, 100.0, 60.0, 5.0 // metres, and metres per second
	w := makeWorld(t, lab.MobilityOptions{Interfaces: 4})
	w.extra = "  coverage:\n"
	for i := range 4 {
		w.extra += fmt.Sprintf("    cell%d: {port: %v, interface: %d, x: %v, y: 0, radius: %v}\n",
			i+1, w.port(fmt.Sprintf("dev1-eth%d", i)), i+1, spacing*float64(i), radius)
	}
	w.begin()
	radios := w.radios("dev1", 4)
	w.put("classes/vehicles", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "100ms"})
	p := victim(t, w, radios, "vehicles")

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	at := 0
	for x := 0.0; x < 3*spacing; x += step {
		var heard []handover.PositionInfo
		reports := []handover.PositionSpec{{Device: p.id, X: x, Speed: speed, Heading: 90}}
		if err := w.do(http.MethodPost, "positions", reports, &heard); err != nil {
			t.Fatal(problemText(err))
		}
		// Half-way to the next cell the device finds the next attachment point better.
		if next := int((x + spacing/2) / spacing); next > at && next < len(radios) {
			at = next
			w.eventually("the next place is served, too", func() bool {
				return slices.Contains(w.delivered(radios, p.ip), place(at, p.macs[at]))
			})
			if err := p.move(t.Context(), radios[at], p.macs[at]); err != nil {
				t.Fatal(err)
			}
		}
		<-tick.C
	}
	moves := 0
	for _, rec := range w.handovers(p.id, 100) {
		if rec.Kind != handover.KindMove {
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
