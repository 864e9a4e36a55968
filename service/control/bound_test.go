package control

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What an agent says at once is bounded, and by less where its service says so.
func TestBound(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			fmt.Fprintf(w, "{\"seq\": 1}\n{\"instance\": %q}\n", strings.Repeat("x", 10_000))
			return
		}
		fmt.Fprintf(w, "{\"instance\": %q}", strings.Repeat("x", 10_000))
	}))
	defer agent.Close()
	ask := func(reply, event int) (events int, failed error) {
		c, err := NewClient[int, int](agent.URL, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Bound(reply, event)
		_ = c.Watch(context.WithoutCancel(t.Context()), Silence, func(Event[int, int]) { events++ })
		_, failed = c.Status(t.Context())
		return events, failed
	}
	if events, err := ask(20_000, 20_000); err != nil || events != 2 {
		t.Errorf("what is within the bounds: %v, %d events", err, events)
	}
	if events, err := ask(5_000, 5_000); err == nil || events != 1 {
		t.Errorf("what is not: %v, %d events", err, events)
	}
}
