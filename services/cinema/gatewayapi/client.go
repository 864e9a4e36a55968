package gatewayapi

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"

	"github.com/sluice-net/sluice/kit/control"
)

// Ingress is a client of one ingress gateway. It is safe for concurrent use.
type Ingress struct {
	*control.Client[ChannelEvent, ChannelState]
}

// NewIngress returns a client of the gateway at base; see control.NewClient.
func NewIngress(base string, config *tls.Config, dial control.Dialer) (*Ingress, error) {
	c, err := control.NewClient[ChannelEvent, ChannelState](base, config, dial)
	return &Ingress{c}, err
}

// SetChannel assigns a channel to the gateway, or changes one that it has.
func (c *Ingress) SetChannel(ctx context.Context, x Channel) error {
	return c.Call(ctx, http.MethodPut, channelPath(x.Name), x, nil)
}

// DeleteChannel removes a channel from the gateway.
func (c *Ingress) DeleteChannel(ctx context.Context, name string) error {
	return c.Call(ctx, http.MethodDelete, channelPath(name), nil, nil)
}

// Burst requests the packets since a channel's last key frame.
func (c *Ingress) Burst(ctx context.Context, name string, b Burst) error {
	return c.Call(ctx, http.MethodPost, channelPath(name)+"/burst", b, nil)
}

// Thumbnail returns a small picture of a channel, which may be a cached one.
func (c *Ingress) Thumbnail(ctx context.Context, name string) (t Thumbnail, err error) {
	err = c.Call(ctx, http.MethodGet, channelPath(name)+"/thumbnail", nil, &t)
	return t, err
}

func channelPath(name string) string { return "/v1/channels/" + url.PathEscape(name) }

// Egress is a client of one egress gateway. It has only the requests that all agents answer.
type Egress = control.Client[ViewerEvent, Viewer]

// NewEgress returns a client of the gateway at base; see control.NewClient.
func NewEgress(base string, config *tls.Config, dial control.Dialer) (*Egress, error) {
	return control.NewClient[ViewerEvent, Viewer](base, config, dial)
}
