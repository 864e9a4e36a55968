package kit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// TestAwaitChanges checks that a change waits until the service has read its store. Otherwise its
// item could exist twice.
func TestAwaitChanges(t *testing.T) {
	loaded := make(chan struct{})
	a := api.New(api.Options{Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", "secret")}}})
	changed := 0
	Register(NewREST(a, "handover").AwaitChanges(loaded, t.Context().Done()), http.MethodDelete, "devices/{id}", "Remove a device", func(context.Context, *struct{}) (*struct{}, error) {
		changed++
		return nil, nil
	})
	ask := func(ctx context.Context) {
		req := httptest.NewRequestWithContext(ctx, http.MethodDelete, "/api/v1/handover/devices/car", nil)
		req.Header.Set("Authorization", "Bearer secret")
		a.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if ask(impatient); changed != 0 {
		t.Error("a change before the store is read")
	}
	close(loaded)
	if ask(t.Context()); changed != 1 {
		t.Errorf("%d changes when it is read", changed)
	}
}
