package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/tlsconn"
)

// Path is the prefix of the paths of the operations for neighbours.
const Path = api.Prefix + "/handover/neighbour/"

// maxReply bounds the answer of a neighbour in bytes.
const maxReply = 64 << 10

// Dialer connects to an address, for instance inside a network namespace.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// client sends messages to one neighbour.
type client struct {
	base string
	http *http.Client
}

// newClient returns a client of a neighbour; a nil dial uses the network of this process.
func newClient(n Neighbour, dial Dialer) *client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	}
	t := &http.Transport{
		DialTLSContext:      tlsconn.DialTLS(tlsconn.Dial(dial), n.TLS, 3*time.Second),
		MaxIdleConnsPerHost: 16,
		MaxConnsPerHost:     64,
		IdleConnTimeout:     2 * time.Minute,
		// A neighbour must not make us store a header of any length. maxReply bounds the body.
		MaxResponseHeaderBytes: 16 << 10,
		ForceAttemptHTTP2:      true,
		// A connection whose other end has vanished is closed after a failed ping.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 2 * time.Second},
	}
	return &client{
		base: strings.TrimSuffix(n.URL, "/") + Path,
		http: &http.Client{
			Transport: t,
			// A neighbour must not redirect us to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// send posts one message. It returns a *Refusal if the neighbour has refused the message. After any
// other error it is unknown whether the neighbour has handled the message.
func (c *client) send(ctx context.Context, kind Kind, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+string(kind), bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", kind, err)
	}
	return decodeReply(res.StatusCode, body, out)
}

var errReply = errors.New("the answer is not one of this protocol")

// decodeReply decodes an answer into out, or returns the refusal.
func decodeReply(status int, body []byte, out any) error {
	if len(body) > maxReply {
		return fmt.Errorf("%w: more than %d bytes", errReply, maxReply)
	}
	if status/100 == 2 {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("%w: %w", errReply, err)
		}
		return nil
	}
	r := &Refusal{}
	if err := json.Unmarshal(body, r); err != nil || !r.Code.known() {
		return fmt.Errorf("%w: status %d without a code that is known", errReply, status)
	}
	if r.Code.status() != status {
		return fmt.Errorf("%w: status %d with code %.40q", errReply, status, r.Code)
	}
	r.Status = status
	// The neighbour is not trusted, and its text may end up in logs.
	r.Detail = printable(r.Detail)
	return r
}

// printable returns a neighbour's text in a form that is safe to log in one line.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return s
}
