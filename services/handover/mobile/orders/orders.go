package orders

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

// Limits of the stream.
const (
	// silenceTimeout is how long the stream may carry nothing: the controller sends a comment
	// every five seconds.
	silenceTimeout = 20 * time.Second
	maxEvent       = 64 << 10
	maxText        = 500
)

// ErrReplaced is returned when another daemon has started to follow the orders to the same device.
var ErrReplaced = errors.New("another daemon follows the orders to this device")

// Options holds the controller whose orders are followed, and the device that they are for.
type Options struct {
	// Server is the controller's URL, Device the device's name there, and Key its key.
	Server, Device string
	Key            []byte
	// TLS is used for https servers; nil means the system's authorities.
	TLS *tls.Config
	// Dial connects to the server; nil means the network of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Source is a controller. It implements mobile.OrderSource.
type Source struct {
	opts Options
	path string
	http *http.Client
	last atomic.Uint64
}

// tlsTimeout bounds the TLS handshake with a server.
const tlsTimeout = 10 * time.Second

// New returns a source. It does not connect yet.
func New(o Options) (*Source, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server %q: write a URL like https://controller:8443", o.Server)
	}
	if o.Device == "" || len(o.Key) == 0 {
		return nil, errors.New("orders need the device's name and its key")
	}
	o.Server = strings.TrimSuffix(o.Server, "/")
	transport := &http.Transport{
		DialContext: o.Dial, DialTLSContext: tlsconn.DialTLS(o.Dial, o.TLS, tlsTimeout),
		TLSClientConfig: o.TLS, TLSHandshakeTimeout: tlsTimeout, // apply to connections through a proxy
		ResponseHeaderTimeout: 10 * time.Second, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
	}
	return &Source{
		opts: o, path: "/api/v1/handover/devices/" + url.PathEscape(o.Device) + "/orders",
		http: &http.Client{
			Transport: transport,
			// A signature for one URL must not be sent to another.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections.
func (s *Source) Close() { s.http.CloseIdleConnections() }

// order is an order as the controller encodes it.
type order struct {
	ID    uint64       `json:"id"`
	MAC   openflow.MAC `json:"mac"`
	Cause string       `json:"cause"`
	Why   string       `json:"why"`
	Hold  string       `json:"hold"`
}

// Follow implements mobile.OrderSource.
func (s *Source) Follow(ctx context.Context, connected func(), f func(mobile.Order)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silenceTimeout, func() { cancel(fmt.Errorf("nothing heard for %v", silenceTimeout)) })
	defer watchdog.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if last := s.last.Load(); last > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(last, 10))
	}
	resp, err := s.send(ctx, http.MethodGet, s.path, nil, header)
	if err != nil {
		return cause(ctx, err)
	}
	defer resp.Body.Close()
	connected()
	lines := bufio.NewReaderSize(resp.Body, maxEvent)
	var e event
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return cause(ctx, fmt.Errorf("the stream of orders ends: %w", err))
		}
		if e.add(strings.TrimRight(string(line), "\r\n")) {
			watchdog.Stop() // carrying out an order may take longer than silenceTimeout
			if err := s.handle(e, f); err != nil {
				return err
			}
			e = event{}
		}
		watchdog.Reset(silenceTimeout)
	}
}

// cause returns the cause of the end of ctx, or err if ctx has not ended.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// event is one event of the stream.
type event struct{ kind, data string }

// add adds a line, and reports whether the event is complete.
func (e *event) add(line string) bool {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case line == "":
		return e.kind != ""
	case field == "event":
		e.kind = value
	case field == "data" && len(e.data)+len(value) < maxEvent:
		e.data += value
	}
	return false
}

// handle handles an event. It ignores kinds that it does not know, so that later controllers may
// add some.
func (s *Source) handle(e event, f func(mobile.Order)) error {
	switch e.kind {
	case "replaced":
		return ErrReplaced
	case "order":
	default:
		return nil
	}
	var o order
	if err := json.Unmarshal([]byte(e.data), &o); err != nil {
		return fmt.Errorf("read an order: %w", err)
	}
	hold, err := time.ParseDuration(o.Hold)
	if o.Hold != "" && err != nil || hold < 0 {
		return fmt.Errorf("read order %d: a hold of %q", o.ID, o.Hold)
	}
	if o.ID <= s.last.Load() {
		return nil // the order was carried out already
	}
	s.last.Store(o.ID)
	why := o.Why
	if why == "" {
		why = o.Cause
	}
	f(mobile.Order{ID: o.ID, MAC: o.MAC, Why: why, Hold: hold})
	return nil
}

// Report implements mobile.OrderSource.
func (s *Source) Report(ctx context.Context, o mobile.Order, m mobile.Move, moveErr error) error {
	report := struct {
		Done bool   `json:"done"`
		Text string `json:"text,omitempty"`
	}{Done: moveErr == nil, Text: fmt.Sprintf("to %s: lease after %v, switched in %v", m.To, m.Lease.Round(time.Microsecond), m.Switch.Round(time.Microsecond))}
	if moveErr != nil {
		report.Text = moveErr.Error()
	}
	report.Text = report.Text[:min(len(report.Text), maxText)]
	b, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("report on order %d: %w", o.ID, err)
	}
	resp, err := s.send(ctx, http.MethodPost, s.path+"/"+strconv.FormatUint(o.ID, 10), b, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return fmt.Errorf("report on order %d: %w", o.ID, err)
	}
	return resp.Body.Close()
}

// send sends a request and returns a successful answer; the caller closes its body.
func (s *Source) send(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.opts.Server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", deviceauth.Header(s.opts.Key, s.opts.Device, method, req.URL.Path, time.Now()))
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the controller: %w", err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return nil, fmt.Errorf("the controller answers %s", resp.Status)
	}
	var p struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(b, &p) == nil && p.Detail != "" {
		return nil, fmt.Errorf("the controller answers %s: %s", resp.Status, p.Detail)
	}
	return nil, fmt.Errorf("the controller answers %s", resp.Status)
}
