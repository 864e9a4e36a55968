package mobile

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

// TestRestoredThings checks that the daemon restores only what it has set up: the datapath, the
// interfaces that it has, and the lease that it uses.
func TestRestoredThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		restore := func(want ...string) {
			t.Helper()
			for _, thing := range w.d.things() {
				n, err := thing.Restore(t.Context())
				if err != nil {
					t.Error(err)
				}
				w.d.drift.Record(thing.Name, n, err, time.Now())
			}
			if !slices.Equal(w.restored, want) {
				t.Errorf("restored %v, want %v", w.restored, want)
			}
			w.restored = nil
		}
		w.links["b"] = device.Link{Name: "b"}
		w.start()
		restore("10.8.0.10/24", "a")
		w.link("a", func(l *device.Link) { *l = device.Link{Name: "a"} })
		restore("10.8.0.10/24")
		s, err := w.d.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := s.Drift; len(d) != 2 || d[0].Thing != "address and routes of v" || d[0].Times != 4 || d[1].Thing != "interface a" || d[1].Times != 1 {
			t.Errorf("the status has %+v", d)
		}
		if w.path.Restored() != 2 {
			t.Errorf("the datapath was restored %d times", w.path.Restored())
		}
		w.pass(2 * time.Hour) // the lease has expired
		restore()
	})
}
