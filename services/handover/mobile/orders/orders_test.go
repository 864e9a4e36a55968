package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

var key = []byte("0123456789abcdef0123456789abcdef")

// controller answers like the controller's API, and checks each request's header like it.
func controller(t *testing.T, stream func(w http.ResponseWriter, r *http.Request)) (*Source, chan string) {
	t.Helper()
	var checker deviceauth.Checker
	reports := make(chan string, 4)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := deviceauth.Parse(r.Header.Get("Authorization"))
		if err == nil {
			err = checker.Check(c, key, r.Method, r.URL.Path, time.Now())
		}
		switch {
		case err != nil || c.ID != "phone":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"detail":%q}`, fmt.Sprint(err))
		case r.Method == http.MethodGet:
			stream(w, r)
		default:
			var body struct {
				Done bool
				Text string
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			reports <- fmt.Sprintf("%s %v %s", r.URL.Path[strings.LastIndex(r.URL.Path, "/"):], body.Done, body.Text)
		}
	}))
	t.Cleanup(s.Close)
	source, err := New(Options{Server: s.URL + "/", Device: "phone", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source, reports
}

func follow(t *testing.T, s *Source) ([]mobile.Order, int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []mobile.Order
	connected := 0
	err := s.Follow(ctx, func() { connected++ }, func(o mobile.Order) { got = append(got, o) })
	return got, connected, err
}

func TestOrders(t *testing.T) {
	last := make(chan string, 2)
	s, _ := controller(t, func(w http.ResponseWriter, r *http.Request) {
		last <- r.Header.Get("Last-Event-ID")
		fmt.Fprint(w, ": listening\n\n"+
			"id: 7\nevent: order\ndata: {\"id\":7,\"device\":\"phone\",\"mac\":\"02:00:00:00:00:02\",\"prepared\":true,\"cause\":\"operator\",\"hold\":\"30s\",\"time\":\"2026-01-01T00:00:00Z\"}\n\n"+
			": still here\n\nevent: unheard-of\ndata: {}\n\n"+
			"id: 8\r\nevent: order\r\ndata: {\"id\":8,\"mac\":\"00:00:00:00:00:00\",\r\ndata: \"cause\":\"load\",\"why\":\"cell is full\",\"hold\":\"0s\"}\r\n\r\n")
	})
	got, connected, err := follow(t, s)
	want := []mobile.Order{
		{ID: 7, MAC: openflow.MAC{2, 0, 0, 0, 0, 2}, Why: "operator", Hold: 30 * time.Second},
		{ID: 8, Why: "cell is full"},
	}
	if err == nil || connected != 1 || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, connected %d, %v", got, connected, err)
	}
	// After a reconnection orders that were carried out are not carried out again.
	got, _, _ = follow(t, s)
	if first, second := <-last, <-last; len(got) != 0 || first != "" || second != "8" {
		t.Errorf("%+v, first %q, second %q", got, first, second)
	}
}

func TestStreamsThatEnd(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		kind             error
	}{
		{"another daemon", "event: replaced\ndata: {}\n\n", "another daemon", ErrReplaced},
		{"not JSON", "event: order\ndata: {\n\n", "read an order", nil},
		{"a hold that is none", "event: order\ndata: {\"id\":1,\"mac\":\"02:00:00:00:00:02\",\"hold\":\"soon\"}\n\n", "hold", nil},
		{"a hold in the past", "event: order\ndata: {\"id\":1,\"mac\":\"02:00:00:00:00:02\",\"hold\":\"-5s\"}\n\n", "hold", nil},
		{"a line without end", strings.Repeat("x", maxEvent+1), "buffer full", nil},
		{"nothing", "", "EOF", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := controller(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.text) })
			got, _, err := follow(t, s)
			if len(got) != 0 || err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	s, _ := controller(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Follow(ctx, cancel, func(mobile.Order) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestReport(t *testing.T) {
	s, reports := controller(t, nil)
	if err := s.Report(t.Context(), mobile.Order{ID: 7}, mobile.Move{To: "wlan1", Lease: 1500 * time.Microsecond, Switch: time.Millisecond}, nil); err != nil {
		t.Error(err)
	}
	if got, want := <-reports, "/7 true to wlan1: lease after 1.5ms, switched in 1ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := s.Report(t.Context(), mobile.Order{ID: 8}, mobile.Move{}, errors.New(strings.Repeat("x", 1000))); err != nil {
		t.Error(err)
	}
	if got := <-reports; got != "/8 false "+strings.Repeat("x", maxText) {
		t.Errorf("%q", got)
	}
	s.opts.Key = []byte("another key")
	if err := s.Report(t.Context(), mobile.Order{ID: 9}, mobile.Move{}, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with another key: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Server: "", Device: "d", Key: key},
		{Server: "controller:8443", Device: "d", Key: key},
		{Server: "https://c", Key: key},
		{Server: "https://c", Device: "d"},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
