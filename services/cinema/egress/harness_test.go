package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// world is a gateway, a fake controller, and channels whose packets that copies.
type world struct {
	t testing.TB
	*Gateway
	url string
	log *lockedLog
	end func() // ends the gateway

	mu       sync.Mutex
	studios  map[string]*fakeChannel
	wants    []gatewayapi.Wanted
	away     bool // the controller does not answer
	lines    gatewayapi.Lineup
	password string // of protected channels
	full     int    // the port has no room for that many channels of a viewer; 0: it has room
	grants   uint64
	granted  map[string]gatewayapi.Wanted // the latest granted request of each viewer
	numbers  map[string]uint64            // the number of that grant
	ended    []gatewayapi.Wanted          // requests of which a record has ended the other channels
}

type lockedLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// newWorld starts a gateway with channels of these names.
func newWorld(t testing.TB, change func(*Config), names ...string) *world {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	ingress := newIngress()
	w := &world{t: t, studios: map[string]*fakeChannel{}, granted: map[string]gatewayapi.Wanted{}, numbers: map[string]uint64{}, log: &lockedLog{}, password: "sesame"}
	for i, name := range names {
		w.studios[name] = newStudio(t, ingress, uint16(i+1))
		w.lines.Channels = append(w.lines.Channels, gatewayapi.Listed{Name: name, Number: uint16(i + 1), Title: strings.ToUpper(name), OnAir: gatewayapi.OnAirLive})
	}
	cfg := Config{
		Name: "west", Log: slog.New(slog.NewTextHandler(w.log, nil)), Data: netip.MustParseAddr("127.0.0.1"),
		Ports: control.PortRange{First: 30000, Last: 34095}, Media: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		MaxViewers: 10, MaxPerAddress: 10, Burst: true, MakeBeforeBreak: true, Controller: w, Times: DefaultTimes(),
	}
	// No timeout passes because the machine is slow.
	cfg.Times = Times{Ask: time.Minute, KeyFrame: time.Minute, Connect: time.Minute, Silence: time.Minute, Poll: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	inside, outside := listenLocal(t), listenLocal(t)
	w.url = "http://" + outside.Addr().String()
	cfg.URL = w.url
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway = g
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, inside, outside) }()
	var following sync.WaitGroup
	following.Go(func() { w.followRecords(ctx) })
	w.end = sync.OnceFunc(func() {
		cancel()
		following.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		w.end()
		http.DefaultClient.CloseIdleConnections()
		if text := w.log.text(); strings.Contains(text, w.password) {
			t.Errorf("a password in the log: %s", text)
		}
	})
	w.until("the lineup", func() bool { return g.lineup.Load() != nil })
	return w
}

func listenLocal(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// until waits for a condition.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain for %s: %s", what, w.log.text())
		}
	}
}

// Lineup implements Controller.
func (w *world) Lineup(ctx context.Context) (gatewayapi.Lineup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return gatewayapi.Lineup{}, client.ErrUnreachable
	}
	l := w.lines
	l.Channels, l.Gateways = slices.Clone(l.Channels), slices.Clone(l.Gateways)
	return l, nil
}

// Thumbnail implements Controller.
func (w *world) Thumbnail(_ context.Context, channel string) (gatewayapi.Thumbnail, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return gatewayapi.Thumbnail{}, client.ErrUnreachable
	}
	return gatewayapi.Thumbnail{JPEG: []byte("picture of " + channel)}, nil
}

// Wanted implements Controller.
func (w *world) Wanted(ctx context.Context, x gatewayapi.Wanted) (gatewayapi.Granted, error) {
	w.mu.Lock()
	away, full := w.away, w.full > 0 && len(x.Channels) >= w.full
	w.wants = append(w.wants, x)
	studios, nowhere := maps.Clone(w.studios), map[string]bool{}
	for name, s := range studios {
		nowhere[name] = s.nowhere
	}
	w.mu.Unlock()
	if away {
		<-ctx.Done()
		return gatewayapi.Granted{}, fmt.Errorf("%w: %w", client.ErrUnreachable, ctx.Err())
	}
	if full {
		return gatewayapi.Granted{}, problem(http.StatusConflict, "body.gateway")
	}
	granted := gatewayapi.Granted{}
	for i, name := range x.Channels {
		s := studios[name]
		if s == nil {
			return granted, problem(http.StatusUnprocessableEntity, fmt.Sprintf("body.channels[%d]", i))
		}
		if s.protected && i == 0 && x.Password != w.password && !s.has(x.Port) {
			return granted, problem(http.StatusForbidden, "body.password")
		}
		if !nowhere[name] {
			granted.Channels = append(granted.Channels, gatewayapi.Source{Channel: name, From: s.from})
		}
	}
	for name, s := range studios {
		s.copyTo(x.Port, x.Viewer, slices.Contains(x.Channels, name), x.Burst && name == x.Channels[0])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	granted.Number = w.grants
	w.granted[x.Viewer] = x
	w.numbers[x.Viewer] = w.grants
	return granted, nil
}

// followRecords ends the other channels of a viewer when the gateway records its change, as the
// controller does.
func (w *world) followRecords(ctx context.Context) {
	for {
		all, changed := w.server.Records()
		for _, e := range all {
			w.endOthers(e)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (w *world) endOthers(e gatewayapi.ViewerEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.granted[e.Viewer]
	if e.Grant == 0 || e.Grant != w.numbers[e.Viewer] || len(x.Channels) < 2 || x.Channels[0] != e.Channel {
		return
	}
	if s := w.studios[x.Channels[1]]; s != nil {
		s.copyTo(x.Port, x.Viewer, false, false)
	}
	w.ended = append(w.ended, x)
	x.Channels = x.Channels[:1]
	w.granted[e.Viewer] = x
}

// oneCrossing fails the test unless viewers have sent these requests, and records have ended the
// old channels of that many changes.
func (w *world) oneCrossing(ended int, want ...[]string) {
	w.t.Helper()
	w.until("the old channels to end", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ended) == ended })
	if got := w.wanted(); !slices.EqualFunc(got, want, slices.Equal) {
		w.t.Errorf("requests %v, want %v", got, want)
	}
}

func problem(status int, field string) error {
	return &client.Problem{Status: status, Title: http.StatusText(status), Errors: []client.Field{{Location: field, Message: "wrong"}}}
}

func (w *world) wanted() [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out [][]string
	for _, x := range w.wants {
		out = append(out, x.Channels)
	}
	return out
}

// fill leaves the gateway's port no room for that many channels of a viewer.
func (w *world) fill(channels int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = channels
}

func (w *world) leaves(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// ask sends a request and returns the answer with its body.
func (w *world) ask(method, path, kind, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = w.url + path
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(text)
}
