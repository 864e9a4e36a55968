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
	// maxReply bounds an ordinary answer, and maxList one that is a list (CallList): the
	// largest permitted number of sessions fits.
	maxReply = 1 << 20
	maxList  = 64 << 20
	// maxEvent bounds one line of the event stream.
	maxEvent = 16 << 20
	// maxConns bounds the connections to one agent, also where each request takes one (HTTP/1.1).
	maxConns = 256
	// Silence is how long the event stream may be quiet.
	Silence = 3 * time.Second
)

// What an answer or an event may consist of: an empty object of two bytes can become a value
// of hundreds. A list has at most as many elements as an agent carries sessions.
var (
	replyLimits = jsonlimit.Limits{Depth: 16, Values: 100_000, List: 4096, Key: 256}
	listLimits  = jsonlimit.Limits{Depth: 16, Values: 4 << 20, List: 1 << 16, Key: 256}
)

// ErrSilent ends Watch when the agent has sent nothing for too long.
var ErrSilent = errors.New("agent is silent")

// Client speaks to one agent, which records R and has L under way. It is safe for
// concurrent use.
type Client[R, L any] struct {
	base string
	addr string
	dial Dialer
	http *http.Client
	end  context.CancelFunc // of its connections

	maxReply, maxEvent int
}

// NewClient returns a client of the agent at base, such as "https://192.0.2.7:8440".
// The configuration holds the controller's certificate and the CA; nil is for
// an agent on the loopback interface without TLS. Dial is how it connects, for example
// inside a network namespace; nil for the ordinary way.
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
	dial = until(lasting, dial)
	t := &http.Transport{
		MaxIdleConnsPerHost: 64,
		MaxConnsPerHost:     maxConns,
		IdleConnTimeout:     5 * time.Minute,
		ForceAttemptHTTP2:   true,
		DialContext:         dial,
		DialTLSContext:      tlsconn.DialTLS(dial, config, 5*time.Second),
	}
	// An agent that sends its controller elsewhere would have it call there.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client[R, L]{
		base: strings.TrimSuffix(base, "/"), dial: dial, end: end,
		addr: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)), // net knows the ports of both schemes
		http: &http.Client{Transport: t, CheckRedirect: stay}, maxReply: maxReply, maxEvent: maxEvent,
	}, nil
}

// Bound has the client take answers and events of so many bytes at most, where a service's are small. It is
// called before anything is asked.
func (c *Client[R, L]) Bound(reply, event int) { c.maxReply, c.maxEvent = reply, event }

// Close ends the client: its connections are closed, and every request fails.
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

// Knock connects to the control server and leaves again. That somebody listens
// there is what the agent's kernel says, also while the agent itself is stopped or
// gets no processor.
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

// Watch calls f with each event until ctx ends, the agent closes the stream, or it has been
// silent for so long (ErrSilent), usually Silence. It never returns nil.
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
		e.Instance = clip(e.Instance, maxText)
		quiet.Reset(silence)
		f(e)
	}
	err = lines.Err()
	if err == nil {
		err = fmt.Errorf("events of agent %s: %w", c.base, io.ErrUnexpectedEOF)
	}
	return watchError(ctx, err)
}

// watchError prefers why the context ended over what the broken read said.
func watchError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Call sends one request and decodes the answer into out, unless out is nil. An answer of more
// than a MiB, or than Bound has set, is an error.
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

// send does one request; an answer that is not 2xx becomes a *Problem.
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

// readProblem turns a refusal into a Problem, whatever its body is.
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

// maxText is how many bytes are kept of a text of an agent that goes into logs and events.
const maxText = 300

// clip cuts a text that is longer than most bytes, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
