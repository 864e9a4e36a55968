package nodeapi

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxReply limits an answer; a page of custody with MaxRows rows fits.
	maxReply = 512 << 10
	// maxEvent limits an event, which contains one report.
	maxEvent = 64 << 10
)

// Client is a client of one node. Its methods may be called concurrently.
type Client struct {
	*control.Client[control.Nothing, Report]
}

// NewClient returns a client of the node at base; see control.NewClient.
func NewClient(base string, config *tls.Config, dial control.Dialer) (*Client, error) {
	c, err := control.NewClient[control.Nothing, Report](base, config, dial)
	if err != nil {
		return nil, err
	}
	c.Bound(maxReply, maxEvent)
	return &Client{c}, nil
}

// Prove asks the node to prove that it holds the key of its name, and returns the name. The error
// wraps record.ErrSignature if the proof is false.
func (c *Client) Prove(ctx context.Context) (name frame.GUID, err error) {
	challenge := NewChallenge()
	var p Proof
	if err := c.Call(ctx, http.MethodPost, "/v1/proof", challenge, &p); err != nil {
		return name, err
	}
	return challenge.Verify(p)
}

// Custody lists the chunks that a storage node stores.
func (c *Client) Custody(ctx context.Context, q CustodyQuery) (p CustodyPage, err error) {
	if err := c.Call(ctx, http.MethodGet, "/v1/custody?"+q.values().Encode(), nil, &p); err != nil {
		return p, err
	}
	return p, p.Check(q)
}
