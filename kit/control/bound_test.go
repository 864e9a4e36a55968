package control

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBound checks that the size of an agent's answers and events is bounded, and that a service
// can lower the bound.
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

// TestHostileAgent checks that answers beyond 1 MiB are refused, and short ones that would become
// many values, and that texts are cut.
func TestHostileAgent(t *testing.T) {
	for name, c := range map[string]struct{ status, want string }{
		"an endless text":     {`{"version": "` + strings.Repeat("x", 2<<20) + `"}`, "more than 1048576 bytes"},
		"very many warnings":  {`{"warnings": [` + strings.Repeat(`"",`, 300_000) + `""]}`, "more than 4096 elements"},
		"very many addresses": {`{"peers": [` + strings.Repeat(`{},`, 300_000) + `{}]}`, "more than 4096 elements"},
		"nested lists":        {`{"x": ` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`, "more than 16 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			c0 := hostile(t, c.status)
			if _, err := c0.Status(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Status: %v, want %q", err, c.want)
			}
			if err := c0.Watch(t.Context(), Silence, func(Event[int, int]) { t.Error("an event was taken") }); err == nil {
				t.Error("Watch returned no error")
			}
		})
	}
	s, err := hostile(t, `{"instance": "`+strings.Repeat("i", 1000)+`", "warnings": [`+strings.Repeat(`"`+strings.Repeat("w", 2000)+`",`, 99)+`"w"], "public_url": "https://`+strings.Repeat("u", 3000)+`"}`).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Instance) > maxText+3 || len(s.Warnings) != maxWarnings || len(s.Warnings[0]) > maxWarning+3 || s.PublicURL != "" {
		t.Errorf("instance of %d bytes, %d warnings, the first of %d bytes, a URL of %d", len(s.Instance), len(s.Warnings), len(s.Warnings[0]), len(s.PublicURL))
	}
}

// hostile returns a client of an agent that answers everything with one text. Its events have
// two lists of 70,000 empty objects.
func hostile(t *testing.T, status string) *Client[int, int] {
	t.Helper()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			fmt.Fprintln(w, `{"x": [`+strings.Repeat(`{},`, 70_000)+`{}]}`)
			return
		}
		fmt.Fprint(w, status)
	}))
	t.Cleanup(agent.Close)
	c, err := NewClient[int, int](agent.URL, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
