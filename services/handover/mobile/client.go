package mobile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Client talks to a daemon over its control socket.
type Client struct {
	socket string
	http   *http.Client
}

// Dial returns a client. It does not connect yet.
func Dial(socket string) *Client {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}
	return &Client{socket: socket, http: &http.Client{Transport: t}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the daemon's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Move moves the device, and returns after the move.
func (c *Client) Move(ctx context.Context, r MoveRequest) (Move, error) {
	var m Move
	return m, c.do(ctx, http.MethodPost, "/v1/move", r, &m)
}

// Auto leaves the choice of the interface to the policy again.
func (c *Client) Auto(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/auto", struct{}{}, nil)
}

// do sends a request and decodes the answer into out, unless out is nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("request %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://mobile"+path, body)
	if err != nil {
		return fmt.Errorf("request %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the daemon at %s (is \"sluice mobile run\" running?): %w", c.socket, err)
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(io.LimitReader(resp.Body, 16<<20))
	if resp.StatusCode != http.StatusOK {
		p := &problem{Detail: resp.Status}
		if err := dec.Decode(p); err != nil {
			return fmt.Errorf("the daemon answers %s", resp.Status)
		}
		return p.known()
	}
	if out == nil {
		return nil
	}
	if err := dec.Decode(out); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	return nil
}

// known returns the problem as an error that wraps the error of its code. For an unknown code it
// returns the problem itself.
func (p *problem) known() error {
	for _, c := range codes {
		if p.Code == c.code {
			return &remoteError{p, c.err}
		}
	}
	return p
}

// remoteError is an error of the daemon as its client sees it.
type remoteError struct {
	*problem
	kind error
}

// Unwrap returns the error that the problem's code stands for.
func (e *remoteError) Unwrap() error { return e.kind }
