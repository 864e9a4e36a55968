package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
)

// A service that has not read its store answers no list, and the controller is not ready.
func TestNothingIsReadBeforeItIsLoaded(t *testing.T) {
	a := api.New(api.Options{Auth: withToken(), Log: slog.New(slog.DiscardHandler)})
	loaded := make(chan struct{})
	a.Await("parts", loaded)
	huma.Get(a.Huma(), api.Prefix+"/parts/list", func(context.Context, *struct{}) (*struct{ Body []string }, error) {
		out := []string{}
		if isClosed(loaded) {
			out = append(out, "one")
		}
		return &struct{ Body []string }{out}, nil
	})
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	list := func() answer { return ask(t, "GET", s.URL+"/api/v1/parts/list", "", "Authorization", "Bearer "+secret) }
	if got := list(); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("before: %d %s", got.status, got.body)
	}
	if got := ask(t, "GET", s.URL+"/readyz", ""); got.status != 503 {
		t.Errorf("ready before it is: %d %s", got.status, got.body)
	}
	cl, err := client.New(client.Options{Server: s.URL, Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	time.AfterFunc(50*time.Millisecond, func() { close(loaded) })
	var parts []string
	if err := cl.Get(t.Context(), "/api/v1/parts/list", &parts); err != nil || len(parts) != 1 {
		t.Errorf("a client that waits got %v, %v", parts, err)
	}
	if got := list(); got.status != 200 {
		t.Errorf("after: %d %s", got.status, got.body)
	}
	if got := ask(t, "GET", s.URL+"/readyz", ""); got.status != 200 {
		t.Errorf("not ready after: %d %s", got.status, got.body)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
