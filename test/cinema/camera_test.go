package cinema

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const publishPassword = "on the air"

// camera returns the flags of a Chromium with a fake camera and microphone that need no
// permission, for a page without TLS.
func camera(origin string) []string {
	return []string{"use-fake-device-for-media-stream", "use-fake-ui-for-media-stream", "unsafely-treat-insecure-origin-as-secure=" + origin}
}

// TestCamera checks that one Chromium publishes its camera and microphone by the site's page,
// and that another one sees and hears it, by the site and through the network.
func TestCamera(t *testing.T) {
	begin(t, "chromium")
	top, roles := testbed.CinemaNetwork("cinema-camera", link)
	w := newWorld(t, top, roles)
	w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{Name: "live1", Number: 1, BitRate: 2 * bitRate, PublishPassword: publishPassword}))
	producer := w.publish("live1")
	viewer := w.browse(testbed.Viewer, w.PublicURL("out2")+"/#live1")
	viewer.moves(20)
	w.must(testbed.Poll(t.Context(), "sound", func() error {
		if h := viewer.heard(); h.Sound < 50 || h.Energy == 0 {
			return fmt.Errorf("%+v", h)
		}
		return nil
	}))
	t.Logf("the viewer has had %+v of sound and pictures", viewer.heard())
	viewer.clean("out2")
	producer.clean("out1", "in1", "in2")
	w.must(producer.Do(t.Context(), `document.getElementById("stop").click()`))
	viewer.is("the viewer to be told", `/not on air/.test(document.getElementById("absent").textContent)`)
}

// publish makes a Chromium go live on a channel from the page of out1.
func (w *world) publish(channel string) *page {
	w.t.Helper()
	p := w.browse("out1", w.PublicURL("out1")+"/live", camera(w.PublicURL("out1"))...)
	p.is("the channel to be offered", fmt.Sprintf(`document.getElementById("channel").value === %q`, channel))
	w.must(p.Do(w.t.Context(), fmt.Sprintf(`document.getElementById("password").value = %q; document.getElementById("start").click()`, publishPassword)))
	p.is("to be on the air", `/^You are on air/.test(document.getElementById("status").textContent)`)
	return p
}
