package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
)

// follow opens the stream; its header has arrived when it returns.
func follow(t *testing.T, url, lastID string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %s %v", resp.Status, resp.Header)
	}
	return resp
}

// message is one event as the protocol carries it.
type message struct{ id, event, data string }

// read returns the next n messages.
func read(t *testing.T, resp *http.Response, n int) []message {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { resp.Body.Close() })
	defer timer.Stop()
	var out []message
	var m message
	lines := bufio.NewScanner(resp.Body)
	for len(out) < n && lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case "":
			if m.data != "" && value == "" {
				out = append(out, m)
			}
			m = message{}
		}
	}
	if len(out) < n {
		t.Fatalf("%d messages, then %v: %v", len(out), lines.Err(), out)
	}
	return out
}

func TestEvents(t *testing.T) {
	bus := event.NewBus(7, 4)
	a := api.New(api.Options{Auth: withToken(), Bus: bus, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	url := s.URL + "/api/v1/events"
	ids := make([]uint64, 0, 10)
	publish := func(kind string) { ids = append(ids, bus.Publish(kind, map[string]int{"n": len(ids)})) }
	publish("a.one")
	publish("b.two")

	t.Run("from the beginning, then live", func(t *testing.T) {
		resp := follow(t, url+"?after=0", "")
		defer resp.Body.Close()
		publish("a.three")
		got := read(t, resp, 3)
		for i, m := range got {
			var e event.Event
			if err := json.Unmarshal([]byte(m.data), &e); err != nil {
				t.Fatal(err)
			}
			if m.id != fmt.Sprint(ids[i]) || e.ID != ids[i] || m.event != e.Kind || string(e.Attrs) != fmt.Sprintf(`{"n":%d}`, i) {
				t.Errorf("message %d: %+v", i, m)
			}
		}
	})
	t.Run("after the last one seen", func(t *testing.T) {
		resp := follow(t, url, fmt.Sprint(ids[0]))
		defer resp.Body.Close()
		if got := read(t, resp, 1); got[0].id != fmt.Sprint(ids[1]) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("some kinds", func(t *testing.T) {
		resp := follow(t, url+"?after=0&kind=b.", "")
		defer resp.Body.Close()
		if got := read(t, resp, 1); got[0].event != "b.two" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("only what happens next", func(t *testing.T) {
		resp := follow(t, url, "")
		defer resp.Body.Close()
		publish("c")
		if got := read(t, resp, 1); got[0].event != "c" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("what was missed is said", func(t *testing.T) {
		for range 6 {
			publish("many")
		}
		for _, last := range []uint64{ids[0], 5<<32 | 9} {
			resp := follow(t, url, fmt.Sprint(last))
			got := read(t, resp, 2)
			resp.Body.Close()
			if got[0].event != "missed" || got[0].id != "" || !strings.Contains(got[0].data, fmt.Sprintf(`"after":%d`, last)) || got[1].id != fmt.Sprint(ids[len(ids)-4]) {
				t.Errorf("after %d: %+v", last, got)
			}
		}
	})
}

// A stream of events ends when the token is replaced by which it was opened, and goes on
// when the tokens are set as they were.
func TestWithdrawnTokenEndsStreams(t *testing.T) {
	bus := event.NewBus(7, 4)
	a := api.New(api.Options{Auth: withToken(), Bus: bus, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	resp := follow(t, s.URL+"/api/v1/events", "")
	defer resp.Body.Close()
	a.SetTokens(withToken().Tokens)
	bus.Publish("a.one", nil)
	read(t, resp, 1)
	a.SetTokens([]api.Token{api.NewToken("test", "another-secret-of-this-test")})
	timer := time.AfterFunc(time.Minute, func() { resp.Body.Close() })
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream has not ended by itself: %v", err)
	}
	timer.Stop()
}
