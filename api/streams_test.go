package api_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/event"
)

// served runs an API on a loopback port until the test ends.
func served(t *testing.T, o api.Options) (*api.API, string) {
	t.Helper()
	a := api.New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	background(t, func() error { return a.Run(t.Context(), l) })
	return a, l.Addr().String()
}

// background waits for f when the test has ended, whose context ends before.
func background(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// openStreams returns the number of open streams of events.
func openStreams(t *testing.T, a *api.API) int {
	t.Helper()
	all, err := a.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "sluice_api_event_streams" {
			return int(only(f.GetMetric()).GetGauge().GetValue())
		}
	}
	t.Fatal("streams are not counted")
	return 0
}

func only(m []*dto.Metric) *dto.Metric { return m[0] }

// silentReader opens a stream of events and reads no more than that it is open.
func silentReader(t *testing.T, addr, token string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "GET /api/v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", addr, token); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	return conn
}

// Whoever opens as many streams as there may be, and reads none, keeps neither others nor
// themselves from following what happens.
func TestSilentReadersKeepNobodyAway(t *testing.T) {
	bus := event.NewBus(7, 4)
	const own = "another-secret-of-this-test"
	auth := withToken()
	auth.Tokens = append(auth.Tokens, api.NewToken("other", own))
	a, addr := served(t, api.Options{Auth: auth, Bus: bus, Log: slog.New(slog.DiscardHandler)})
	first := silentReader(t, addr, secret)
	for range 255 {
		silentReader(t, addr, secret)
	}
	for _, token := range []string{own, secret} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a reader gets %s", resp.Status)
		}
		bus.Publish("a.one", nil)
		read(t, resp, 1)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the oldest stream has not given way: %v", err)
	}
	if n := openStreams(t, a); n > 130 {
		t.Errorf("%d streams are open of which one sender may have 128", n)
	}
}

// A reader that does not read for 10 s what is written to it is ended.
func TestReaderThatDoesNotReadIsEnded(t *testing.T) {
	t.Parallel()
	bus := event.NewBus(7, 4096)
	a, addr := served(t, api.Options{Auth: withToken(), Bus: bus, Log: slog.New(slog.DiscardHandler)})
	silentReader(t, addr, secret)
	if n := openStreams(t, a); n != 1 {
		t.Fatalf("%d streams are open", n)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for openStreams(t, a) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("a reader that does not read is still there")
		}
		for range 20 {
			bus.Publish("a.one", map[string]string{"text": strings.Repeat("x", 4000)})
		}
		<-tick.C
	}
}
