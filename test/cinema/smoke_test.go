package cinema

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/lab/testbed"
)

// TestSmoke proves Cinema's main function: Chromium watches by the gateways' site and changes
// channel, shows the new channel, and no picture that is of neither.
func TestSmoke(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	top, roles := testbed.CinemaNetwork("cinema-smoke", link)
	w := newWorld(t, top, roles)
	w.channels(4)
	b, err := testbed.StartBrowser(t.Context(), w.lab.Host(testbed.Viewer), filepath.Join(w.log, "chromium.log"))
	w.must(err)
	defer b.Close()
	w.must(b.Open(t.Context(), w.PublicURL("out2")+"/#c1"))
	w.must(b.WatchPictures(t.Context()))
	w.must(b.Shows(t.Context(), 1))
	for i := range 4 {
		from, to := uint16(i%4+1), uint16((i+1)%4+1)
		z, err := b.Zap(t.Context(), kb.ArrowUp, from, to)
		w.must(err)
		if z.Wrong > 0 {
			t.Errorf("from channel %d to %d: %d wrong pictures", from, to, z.Wrong)
		}
		said, err := testbed.InPage[string](t.Context(), b, `document.getElementById("zap").textContent + " " + JSON.stringify(window.jb ?? 0)`)
		w.must(err)
		t.Logf("%d to %d: %v, frozen for %v; the page says: %s", from, to, z.Took, z.Frozen, said)
	}
}
