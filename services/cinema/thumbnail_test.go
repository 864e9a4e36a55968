package cinema

import (
	"net/http"
	"testing"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestThumbnail checks that gateways get the thumbnail of a channel only if it has no password.
func TestThumbnail(t *testing.T) {
	b := newBench(t)
	control.Handle(b.studio.server, "GET /v1/channels/{name}/thumbnail", func(r *http.Request, _ control.Nothing) (gatewayapi.Thumbnail, error) {
		size := map[string]int{"a": 3, "b": gatewayapi.MaxThumbnail + 1}[r.PathValue("name")]
		return gatewayapi.Thumbnail{JPEG: make([]byte, size)}, nil
	})
	secret := ChannelSpec{Name: "secret", Number: 3, Source: "test:", BitRate: 2e6, ViewPassword: "sesame"}
	c, faults := secret.Parse()
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.service.Channels.Add(t.Context(), c.Name, c); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"a": http.StatusOK, "b": http.StatusNotFound, "secret": http.StatusNotFound, "none": http.StatusNotFound} {
		if status, body := b.asAgent("east", http.MethodGet, "thumbnail?channel="+name, ""); status != want {
			t.Errorf("%s: %d %s, want %d", name, status, body, want)
		}
	}
}
