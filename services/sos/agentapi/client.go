package agentapi

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/sluice-net/sluice/kit/control"
)

// Event is one line of an agent's event stream.
type Event = control.Event[SessionRecord, Live]

// Client is a client of the control API of one agent. It is safe for concurrent use.
type Client struct {
	*control.Client[SessionRecord, Live]
}

// NewClient returns a client of the agent at base; see control.NewClient.
func NewClient(base string, config *tls.Config, dial control.Dialer) (*Client, error) {
	c, err := control.NewClient[SessionRecord, Live](base, config, dial)
	return &Client{c}, err
}

// Prepare announces a session to the agent.
func (c *Client) Prepare(ctx context.Context, req PrepareRequest) (PrepareReply, error) {
	var reply PrepareReply
	err := c.Call(ctx, http.MethodPost, "/v1/sessions", req, &reply)
	return reply, err
}

// Commit starts a prepared session: the server's agent dials the server, and the client's agent
// connects to its peer and waits for the client.
func (c *Client) Commit(ctx context.Context, id SessionID) error {
	return c.Call(ctx, http.MethodPost, "/v1/sessions/"+id.String()+"/commit", nil, nil)
}

// Abort ends a session with a RST to the end host, and makes the agent forget it.
func (c *Client) Abort(ctx context.Context, id SessionID) error {
	return c.Call(ctx, http.MethodDelete, "/v1/sessions/"+id.String(), nil, nil)
}

// Mark changes the DSCPs of packets that the agent sends for a session.
func (c *Client) Mark(ctx context.Context, id SessionID, m Marks) error {
	return c.Call(ctx, http.MethodPut, "/v1/sessions/"+id.String()+"/marks", m, nil)
}

// Sessions lists the live sessions.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	var list []Session
	err := c.CallList(ctx, "/v1/sessions", &list)
	return list, err
}

// Paths returns the agent's knowledge about its paths, by peer and port.
func (c *Client) Paths(ctx context.Context) ([]PathStatus, error) {
	var list []PathStatus
	err := c.CallList(ctx, "/v1/paths", &list)
	return list, err
}

// Limit replaces the limits of the agent's paths. It returns the agent's knowledge about those of
// the limited paths that have been used, up to the moment before the change.
func (c *Client) Limit(ctx context.Context, limits Limits) ([]PathStatus, error) {
	var list []PathStatus
	err := c.Call(ctx, http.MethodPut, "/v1/paths/limits", limits, &list)
	return list, err
}

// ExpectPeers replaces the list of peers whose connections the agent accepts before a session needs
// them.
func (c *Client) ExpectPeers(ctx context.Context, peers WarmPeers) error {
	return c.Call(ctx, http.MethodPut, "/v1/peers/expected", peers, nil)
}

// WarmPeers replaces the list of peers to which the agent opens connections before a session needs
// them, opens the missing connections, and returns the results in the order of the list. The peers
// have to expect the connections already.
func (c *Client) WarmPeers(ctx context.Context, peers WarmPeers) ([]WarmStatus, error) {
	var list []WarmStatus
	err := c.Call(ctx, http.MethodPut, "/v1/peers/warm", peers, &list)
	return list, err
}

// Session returns one live session.
func (c *Client) Session(ctx context.Context, id SessionID) (Session, error) {
	var s Session
	err := c.Call(ctx, http.MethodGet, "/v1/sessions/"+id.String(), nil, &s)
	return s, err
}
