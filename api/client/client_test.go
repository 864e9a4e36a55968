package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Options{Server: s.URL + "/", Token: "secret", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestDo(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"seen":%q}`, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type")+" "+string(body))
	})
	var out struct{ Seen string }
	if err := c.Do(t.Context(), http.MethodPost, "/api/v1/x", map[string]int{"n": 1}, &out); err != nil {
		t.Fatal(err)
	}
	if want := `POST /api/v1/x Bearer secret application/json {"n":1}`; out.Seen != want {
		t.Errorf("got %q, want %q", out.Seen, want)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, contentType, body, want string }{
		{"problem document", "application/problem+json", `{"title":"Unprocessable Entity","status":422,"detail":"no","errors":[{"location":"body.size","value":10,"message":"at most 9"},{"message":"odd"}]}`, "Unprocessable Entity (422): no\n  body.size = 10: at most 9\n  odd"},
		{"something else", "text/html", "<html>proxy</html>", "Unprocessable Entity (422): <html>proxy</html>"},
		{"broken document", "application/problem+json", "{", "Unprocessable Entity (422): {"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(422)
				fmt.Fprint(w, c.body)
			})
			err := client.Get(t.Context(), "/", nil)
			var p *Problem
			if !errors.As(err, &p) || err.Error() != c.want || p.Status != 422 {
				t.Errorf("got %q, want %q", err, c.want)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	c, err := New(Options{Server: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/", nil); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://"} {
		if _, err := New(Options{Server: bad}); err == nil {
			t.Errorf("server %q was accepted", bad)
		}
	}
}

func TestEvents(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, ": hello\n\nid: 5\nevent: a\ndata: {\"id\":5,\"kind\":\"a\",\"attrs\":{\"q\":%q}}\n\n: still here\n\nevent: missed\ndata: {\"kind\":\"missed\"}\n\n", r.URL.RawQuery)
	})
	var got []Event
	err := c.Events(t.Context(), EventsRequest{After: 4, Resume: true, Kinds: []string{"a", "b"}}, func(e Event) error {
		got = append(got, e)
		return nil
	})
	if !errors.Is(err, io.EOF) || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	var attrs struct{ Q string }
	if err := json.Unmarshal(got[0].Attrs, &attrs); err != nil || attrs.Q != "after=4&kind=a%2Cb" || got[0].ID != 5 || got[1].Kind != "missed" {
		t.Errorf("events %+v, query %q, %v", got, attrs.Q, err)
	}
	stop := errors.New("enough")
	if err := c.Events(t.Context(), EventsRequest{}, func(Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestEventsObserveContext(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Events(ctx, EventsRequest{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
