package egress

import (
	"net/http"
	"testing"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestThumbnail checks that only a live channel without a password has a thumbnail.
func TestThumbnail(t *testing.T) {
	w := newWorld(t, nil, "news", "secret", "dark")
	w.mu.Lock()
	w.lines.Channels[1].Protected = true
	w.lines.Channels[2].OnAir = gatewayapi.OnAirDown
	w.mu.Unlock()
	w.until("the lineup", func() bool { return w.lineup.Load().Channels[1].Protected })
	for name, status := range map[string]int{
		"news": http.StatusOK, "secret": http.StatusNotFound, "dark": http.StatusNoContent, "none": http.StatusNotFound,
	} {
		res, text := w.ask(http.MethodGet, "/thumbnails/"+name, "", "")
		if res.StatusCode != status || status == http.StatusOK && (text != "picture of "+name || res.Header.Get("Content-Type") != "image/jpeg") {
			t.Errorf("%s: %s, %q", name, res.Status, text)
		}
	}
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
	w.thumbnails = gatewayapi.NewThumbnails(w.Thumbnail)
	if res, _ := w.ask(http.MethodGet, "/thumbnails/news", "", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("without the controller: %s", res.Status)
	}
}
