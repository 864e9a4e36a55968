package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/jsonlimit"
	"github.com/sluice-net/sluice/internal/tlsconn"
)

const (
	// maxReply bounds an ordinary answer, and maxList one that is a list (CallList). A list of the
	// maximum number of sessions fits.
	maxReply = 1 << 20
	maxList  = 64 << 20
	// maxEvent bounds one line of the event stream.
	maxEvent = 16 << 20
	// maxConns bounds the connections to one agent. With HTTP/1.1 each request takes a connection.
	maxConns = 256
	// Silence is how long the event stream may be quiet.
	Silence = 3 * time.Second
)

// replyLimits and listLimits bound what an answer or an event may contain, because two bytes of
// JSON, an empty object, can become a value of hundreds of bytes. A list has at most as many
// elements as an agent has sessions.
var (
	replyLimits = jsonlimit.Limits{Depth: 16, Values: 100_000, List: 4096, Key: 256}
	listLimits  = jsonlimit.Limits{Depth: 16, Values: 4 << 20, List: 1 << 16, Key: 256}
)

// ErrSilent is returned by Watch when the agent has sent nothing for too long.
var ErrSilent = errors.New("agent is silent")

// Client is a client of one agent, whose records have the type R and whose work in progress has the
// type L. It is safe for concurrent use.
type Client[R, L any] struct {
	base string
	addr string
	dial Dialer
	http *http.Client
	end  context.CancelFunc // closes the client's connections

	maxReply, maxEvent int
}

// NewClient returns a client of the agent at base, such as "https://192.0.2.7:8440". config holds
// the controller's certificate and the CA; it is nil for an agent on the loopback interface without
// TLS. dial makes the connections, for example inside a network namespace; if it is nil, a
// net.Dialer is used.
func NewClient[R, L any](base string, config *tls.Config, dial Dialer) (*Client[R, L], error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("agent address %q: %w", base, err)
	}
	if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, fmt.Errorf("agent address %q: want https://HOST:PORT", base)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	}
	lasting, end := context.WithCancel(context.Background())
	dial = closeWhenEnded(lasting, dial)
	t := &http.Transport{
		MaxIdleConnsPerHost: 64,
		MaxConnsPerHost:     maxConns,
		IdleConnTimeout:     5 * time.Minute,
		ForceAttemptHTTP2:   true,
		DialContext:         dial,
		DialTLSContext:      tlsconn.DialTLS(dial, config, 5*time.Second),
	}
	// An agent must not be able to redirect its controller to another address.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client[R, L]{
		base: strings.TrimSuffix(base, "/"), dial: dial, end: end,
		addr: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)), // net knows the ports of both schemes
		http: &http.Client{Transport: t, CheckRedirect: stay}, maxReply: maxReply, maxEvent: maxEvent,
	}, nil
}

// Bound sets the maximum size of answers and events in bytes, for a service whose answers are
// small. Call it before the first request.
func (c *Client[R, L]) Bound(reply, event int) { c.maxReply, c.maxEvent = reply, event }

// Close closes the client's connections. Every later request fails.
func (c *Client[R, L]) Close() {
	c.end()
	c.http.CloseIdleConnections()
}

// Status returns the agent's state.
func (c *Client[R, L]) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.Call(ctx, http.MethodGet, "/v1/status", nil, &s)
	s.clip()
	return s, err
}

// Knock connects to the control server and closes the connection. The agent's kernel accepts the
// connection even if the agent itself is stopped or gets no processor.
func (c *Client[R, L]) Knock(ctx context.Context) error {
	conn, err := c.dial(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("agent %s: %w", c.base, err)
	}
	return conn.Close()
}

// Drain turns draining on or off.
func (c *Client[R, L]) Drain(ctx context.Context, on bool) (Status, error) {
	var s Status
	err := c.Call(ctx, http.MethodPost, "/v1/drain", DrainRequest{On: on}, &s)
	s.clip()
	return s, err
}

// Watch calls f with each event until ctx ends, the agent closes the stream, or the agent has been
// silent for the given time (ErrSilent), which is usually Silence. It never returns nil.
func (c *Client[R, L]) Watch(ctx context.Context, silence time.Duration, f func(Event[R, L])) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(ErrSilent) })
	defer quiet.Stop()
	res, err := c.send(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return watchError(ctx, err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, min(64<<10, c.maxEvent)), c.maxEvent)
	for lines.Scan() {
		var e Event[R, L]
		err := listLimits.Check(lines.Bytes())
		if err == nil {
			err = json.Unmarshal(lines.Bytes(), &e)
		}
		if err != nil {
			return fmt.Errorf("event of agent %s: %w", c.base, err)
		}
		e.Instance, e.Drift = clip(e.Instance, maxText), clipDrift(e.Drift)
		quiet.Reset(silence)
		f(e)
	}
	err = lines.Err()
	if err == nil {
		err = fmt.Errorf("events of agent %s: %w", c.base, io.ErrUnexpectedEOF)
	}
	return watchError(ctx, err)
}

// watchError returns the cause with which the context ended, or err if it has not ended.
func watchError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Call sends one request and decodes the answer into out, unless out is nil. It returns an error if
// the answer exceeds 1 MiB or the size that Bound has set.
func (c *Client[R, L]) Call(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, method, path, in, out, c.maxReply, replyLimits)
}

// CallList requests a list by GET and decodes it into out. It accepts up to 65,536 elements
// in up to 64 MiB.
func (c *Client[R, L]) CallList(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, path, nil, out, maxList, listLimits)
}

func (c *Client[R, L]) call(ctx context.Context, method, path string, in, out any, most int, limits jsonlimit.Limits) error {
	res, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(res.Body, int64(most)))
		return err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	if err == nil {
		err = limits.Check(text)
	}
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("answer of agent %s to %s %s: %w", c.base, method, path, err)
	}
	return nil
}

// send sends one request. It returns an answer that is not 2xx as a *Problem.
func (c *Client[R, L]) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("request to agent: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("request to agent: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, fmt.Errorf("agent %s: %w", c.base, readProblem(res))
}

// readProblem converts an answer with an error status into a Problem, whatever its body is.
func readProblem(res *http.Response) *Problem {
	p := &Problem{}
	err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(p)
	if err != nil || p.Code == "" {
		p = &Problem{Title: "answer " + res.Status + " without a problem document", Code: CodeInternal}
	}
	p.Status = res.StatusCode
	for _, text := range []*string{&p.Title, &p.Detail, &p.Field, (*string)(&p.Code)} {
		*text = clip(*text, maxText)
	}
	return p
}

// maxText bounds, in bytes, an agent's texts that are written to logs and events.
const maxText = 300

// clip cuts a text to at most most bytes, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
