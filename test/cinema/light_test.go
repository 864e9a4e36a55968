package cinema

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/lab/testbed"
)

// Messages of the page about a player other than the requested one.
const (
	saysInsecure = "Browsers give WebCodecs to pages that came by https only. You watch by WebRTC."
	saysNoWebRTC = "WebRTC does not connect from here. You watch by WebSocket."
)

// TestLightPlayer checks that Chromium watches by WebSocket, decodes by itself, and changes
// channel as by WebRTC. Without WebCodecs the page says so and uses WebRTC; where WebRTC does
// not connect, it uses the WebSocket.
func TestLightPlayer(t *testing.T) {
	begin(t, "ffmpeg", "chromium", "nft")
	top, roles := testbed.CinemaNetwork("cinema-light", link)
	w := newWorld(t, top, roles)
	w.channels(4)
	secure := "unsafely-treat-insecure-origin-as-secure=" + w.PublicURL("out2")

	b := w.opens("websocket", "/?player=websocket#c1", secure)
	defer b.Close()
	w.plays(b, 1, "websocket", "")
	heard := false
	for i := 0; i < 8 || !heard && i < 40; i++ { // a moment of the sound may be missed by chance
		from, to := uint16(i%4+1), uint16((i+1)%4+1)
		z, err := b.Zap(t.Context(), kb.ArrowUp, from, to)
		w.must(err)
		if z.Wrong > 0 {
			t.Errorf("from channel %d to %d: %d wrong pictures", from, to, z.Wrong)
		}
		heard = heard || !z.Silent
		said, err := testbed.InPage[string](t.Context(), b, `document.getElementById("zap").textContent`)
		w.must(err)
		t.Logf("%d to %d: %v, frozen for %v, heard %v later; the page says: %s", from, to, z.Took, z.Frozen, z.Heard, said)
	}
	if !heard {
		t.Error("the sound of a channel was never heard")
	}
	b.Close()

	plain := w.opens("plain", "/?player=websocket#c2")
	defer plain.Close()
	w.plays(plain, 2, "whep", saysInsecure)
	plain.Close()

	w.must(w.lab.Host(testbed.Viewer).Command(t.Context(), "nft", "table inet wall { chain out { type filter hook output priority 0; meta l4proto udp drop; }; }").Run())
	walled := w.opens("walled", "/#c3", secure)
	defer walled.Close()
	w.plays(walled, 3, "websocket", saysNoWebRTC)
}

// opens opens a page of the site in Chromium on the viewer's host.
func (w *world) opens(name, path string, flags ...string) *testbed.Browser {
	w.t.Helper()
	b, err := testbed.StartBrowser(w.t.Context(), w.lab.Host(testbed.Viewer), filepath.Join(w.log, name+".log"), flags...)
	w.must(err)
	w.must(b.Open(w.t.Context(), w.PublicURL("out2")+path))
	w.must(b.WatchPictures(w.t.Context()))
	return b
}

// plays waits until a channel is seen by a player that the controller knows, and the page names
// the player.
func (w *world) plays(b *testbed.Browser, channel uint16, player, how string) {
	w.t.Helper()
	said := func(id string) string {
		text, err := testbed.InPage[string](w.t.Context(), b, `document.getElementById("`+id+`").textContent`)
		w.must(err)
		return text
	}
	if err := b.Shows(w.t.Context(), channel); err != nil {
		w.t.Fatalf("%v: the page says %q and %q", err, said("status"), said("how"))
	}
	if text := said("how"); text != how {
		w.t.Errorf("the page says %q, want %q", text, how)
	}
	w.must(testbed.Poll(w.t.Context(), "the viewer", func() error {
		var all []struct{ Player string }
		err := w.Get(w.t.Context(), "/api/v1/cinema/viewers", &all)
		if err == nil && !slices.Equal(all, []struct{ Player string }{{player}}) {
			err = errors.New("it is another one, or others are there")
		}
		return err
	}))
}
