package cinema

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestProducerSilent checks that the channel of a silent producer is down, with one event, and
// that viewers' pages show it. When the producer is back, so is the picture.
func TestProducerSilent(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	top, roles := testbed.CinemaNetwork("cinema-silent", link)
	w := newWorld(t, top, roles)
	w.channels(1)
	p := w.browse(testbed.Viewer, w.PublicURL("out2")+"/#c1")
	p.moves(20)
	told := w.follow("cinema.channel.")
	var pid int
	_, err := fmt.Sscanf(w.channel("c1").Producer, "ffmpeg, process %d", &pid)
	w.must(err)
	w.must(syscall.Kill(pid, syscall.SIGSTOP))
	stopped := time.Now()
	down := told.first("cinema.channel.down", `"c1"`, stopped)
	t.Logf("down after %v", down.At.Sub(stopped))
	p.is("the page to tell of it", `/not on air/.test(document.getElementById("absent").textContent)`)
	if l, err := w.Lineup(t.Context()); err != nil || l.Channels[0].OnAir != gatewayapi.OnAirDown {
		t.Errorf("the lineup says %+v, %v", l.Channels, err)
	}
	w.must(syscall.Kill(pid, syscall.SIGKILL)) // the gateway starts another process
	killed := time.Now()
	told.first("cinema.channel.live", `"c1"`, killed)
	p.freshAfter(killed)
	t.Logf("a picture again %v after the producer was killed", time.Since(killed))
	p.moves(20)
	p.is("the page to tell of nothing", `document.getElementById("absent").textContent === ""`)
	if all := told.of("cinema.channel.down", `"c1"`, stopped); len(all) != 1 {
		t.Errorf("%d events tell that the channel is down: %v", len(all), all)
	}
	p.clean("out2")
}

// TestViewerGone checks that nothing is left of a viewer whose browser has disappeared.
func TestViewerGone(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	top, roles := testbed.CinemaNetwork("cinema-gone", link)
	w := newWorld(t, top, roles)
	w.channels(1)
	p := w.browse(testbed.Viewer, w.PublicURL("out2")+"/#c1")
	p.moves(20)
	if all := w.viewers(); len(all) != 1 {
		t.Fatalf("there are %+v", all)
	}
	p.Kill()
	w.must(testbed.Poll(t.Context(), "the viewer to be gone", func() error {
		if all := w.viewers(); len(all) > 0 {
			return fmt.Errorf("there are %+v", all)
		}
		return nil
	}))
	w.nothingLeft()
}
