package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// silenceTimeout is how long a stream may be silent before it is given up. The server sends a
// comment every ten seconds.
const silenceTimeout = 35 * time.Second

// Event is one event of the stream.
type Event struct {
	ID    uint64          `json:"id,omitempty"`
	Kind  string          `json:"kind"`
	At    time.Time       `json:"at"`
	Attrs json.RawMessage `json:"attrs,omitempty"`
	// Raw is the whole body.
	Raw json.RawMessage `json:"-"`
}

// EventsRequest selects the events to follow.
type EventsRequest struct {
	// After is the identifier of the last known event. With Resume the stream begins after it,
	// otherwise with the next event.
	After  uint64
	Resume bool
	// Kinds lists prefixes of the kinds of events to follow; empty means all kinds.
	Kinds []string
}

// Events calls f for each event until ctx ends, f returns an error, the controller ends the
// stream (io.EOF), or the stream is silent for 35 seconds.
func (c *Client) Events(ctx context.Context, r EventsRequest, f func(Event) error) error {
	query := url.Values{}
	if r.Resume {
		query.Set("after", strconv.FormatUint(r.After, 10))
	}
	if len(r.Kinds) > 0 {
		query.Set("kind", strings.Join(r.Kinds, ","))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := fmt.Errorf("%w for %v: the stream is broken", ErrUnreachable, silenceTimeout)
	watchdog := time.AfterFunc(silenceTimeout, func() { cancel(quiet) })
	defer watchdog.Stop()
	resp, err := c.send(ctx, http.MethodGet, "/api/v1/events?"+query.Encode(), nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	var data []byte
	for {
		line, err := lines.ReadString('\n')
		watchdog.Reset(silenceTimeout)
		switch {
		case err != nil && context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return io.EOF
		case err != nil:
			return fmt.Errorf("%w: the stream broke: %w", ErrUnreachable, err)
		case len(data)+len(line) > maxAnswer:
			return errors.New("an event of more than 64 MiB")
		}
		line = strings.TrimRight(line, "\r\n")
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = append(data, text...)
		}
		if line != "" || len(data) == 0 {
			continue
		}
		e := Event{Raw: data}
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		data = nil
		if err := f(e); err != nil {
			return err
		}
	}
}
