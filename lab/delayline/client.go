package delayline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// controlTimeout bounds every exchange on the control socket.
const controlTimeout = 5 * time.Second

// These are the operations of the control socket.
const (
	opStats   = "stats"
	opSet     = "set"
	opCarrier = "carrier"
)

// request is a request of the control protocol, and reply the answer to it. Each is one line of
// JSON.
type request struct {
	Op   string  `json:"op"`
	Link string  `json:"link,omitempty"`
	AtoB *Params `json:"a_to_b,omitempty"`
	BtoA *Params `json:"b_to_a,omitempty"`
	Up   bool    `json:"up,omitempty"`
}

type reply struct {
	Error string               `json:"error,omitempty"`
	Links map[string]LinkState `json:"links,omitempty"`
}

// LinkState holds the state of both directions of a link at one time.
type LinkState struct {
	Up   bool           `json:"up"`
	AtoB DirectionState `json:"a_to_b"`
	BtoA DirectionState `json:"b_to_a"`
}

// DirectionState holds one direction's parameters and counters.
type DirectionState struct {
	Params Params `json:"params"`
	Stats  Stats  `json:"stats"`
}

// Client sends requests to a running delay line.
type Client struct{ socket string }

// Dial returns a client of the delay line with this control socket. Each call of the client
// connects anew.
func Dial(socket string) *Client { return &Client{socket: socket} }

func (c *Client) do(ctx context.Context, req request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return reply{}, fmt.Errorf("delay line: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return reply{}, fmt.Errorf("delay line: %w", err)
	}
	var r reply
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&r); err != nil {
		return reply{}, fmt.Errorf("delay line: %w", errors.Join(ctx.Err(), err))
	}
	if r.Error != "" {
		return reply{}, fmt.Errorf("delay line: %s", r.Error)
	}
	return r, nil
}

// Set changes a link's parameters; nil leaves a direction as it is.
func (c *Client) Set(ctx context.Context, link string, aToB, bToA *Params) error {
	_, err := c.do(ctx, request{Op: opSet, Link: link, AtoB: aToB, BtoA: bToA})
	return err
}

// SetUp plugs a link's cable in or out. Frames in flight are lost.
func (c *Client) SetUp(ctx context.Context, link string, up bool) error {
	_, err := c.do(ctx, request{Op: opCarrier, Link: link, Up: up})
	return err
}

// State returns the parameters and statistics of all links.
func (c *Client) State(ctx context.Context) (map[string]LinkState, error) {
	r, err := c.do(ctx, request{Op: opStats})
	return r.Links, err
}
