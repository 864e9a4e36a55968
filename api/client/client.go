package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tlsconn"
)

// tlsTimeout bounds the TLS handshake.
const tlsTimeout = 10 * time.Second

// maxAnswer limits the part of an answer that is read, in bytes.
const maxAnswer = 64 << 20

// ErrUnreachable means that the controller has not answered at all.
var ErrUnreachable = errors.New("no answer from the controller")

// Options name the controller and the credentials.
type Options struct {
	// Server is the base URL, like "http://127.0.0.1:8080".
	Server string
	// Token is the bearer token; empty if a client certificate is used.
	Token string
	// TLS is used for https servers; nil means the system's authorities.
	TLS *tls.Config
	// Timeout bounds a request and its answer, but not an event stream. Zero means 30 seconds.
	Timeout time.Duration
	// Dial connects to the server in another way than the default; nil means the default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is a client of one controller.
type Client struct {
	base    string
	token   string
	timeout time.Duration
	http    *http.Client
}

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("server %q: write a URL like http://127.0.0.1:8080 or https://controller:8443", o.Server)
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	transport := &http.Transport{
		DialContext: o.Dial,
		// Through a proxy the server's certificate is verified only once.
		DialTLSContext:      tlsconn.DialTLS(o.Dial, o.TLS, tlsTimeout),
		TLSClientConfig:     o.TLS,
		TLSHandshakeTimeout: tlsTimeout,
		ForceAttemptHTTP2:   true,
		Proxy:               http.ProxyFromEnvironment,
	}
	return &Client{
		base: strings.TrimSuffix(o.Server, "/"), token: o.Token, timeout: o.Timeout,
		http: &http.Client{Transport: transport},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get reads the path into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Do(ctx, http.MethodGet, path, nil, out)
}

// Do sends in as JSON (nothing if nil) and reads the answer into out (ignored if nil). The path
// is absolute: "/api/v1/...". The error is a *Problem if the answer is not a success, and
// ErrUnreachable if there is no answer.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, path, body, nil)
	for ; in == nil && method == http.MethodGet && waitWhileLoading(ctx, err); resp, err = c.send(ctx, method, path, nil, nil) {
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// waitWhileLoading waits for the time in a 503 answer's Retry-After, and reports whether the
// request should be tried again before ctx ends.
func waitWhileLoading(ctx context.Context, err error) bool {
	var p *Problem
	if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || p.RetryAfter == 0 {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.RetryAfter):
		return true
	}
}

// send sends a request and returns the answer if that is a success. The caller closes the answer's
// body. Otherwise the error is a *Problem, or wraps ErrUnreachable.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("request %s %s: %w", method, path, err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, c.base, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readProblem(resp)
}

func readProblem(resp *http.Response) error {
	p := &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer %s: %w", resp.Status, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(b, p) != nil {
		p.Detail = strings.TrimSpace(string(b))
	}
	return p
}
