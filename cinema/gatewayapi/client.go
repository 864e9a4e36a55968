package gatewayapi

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"

	"github.com/sluice-net/sluice/service/control"
)

// Ingress speaks to one ingress gateway. It is safe for concurrent use.
type Ingress struct {
	*control.Client[ChannelEvent, ChannelState]
}

// NewIngress returns a client of the gateway at base; see control.NewClient.
func NewIngress(base string, config *tls.Config, dial control.Dialer) (*Ingress, error) {
	c, err := control.NewClient[ChannelEvent, ChannelState](base, config, dial)
	return &Ingress{c}, err
}

// Have makes it have a channel, or have it so.
func (c *Ingress) Have(ctx context.Context, x Channel) error {
	return c.Call(ctx, http.MethodPut, channelPath(x.Name), x, nil)
}

// Drop makes it have a channel no longer.
func (c *Ingress) Drop(ctx context.Context, name string) error {
	return c.Call(ctx, http.MethodDelete, channelPath(name), nil, nil)
}

// Burst has it send what has come since a channel's last key frame.
func (c *Ingress) Burst(ctx context.Context, name string, b Burst) error {
	return c.Call(ctx, http.MethodPost, channelPath(name)+"/burst", b, nil)
}

// Thumbnail is a small picture of a channel, made now or of late.
func (c *Ingress) Thumbnail(ctx context.Context, name string) (t Thumbnail, err error) {
	err = c.Call(ctx, http.MethodGet, channelPath(name)+"/thumbnail", nil, &t)
	return t, err
}

func channelPath(name string) string { return "/v1/channels/" + url.PathEscape(name) }

// Egress speaks to one egress gateway, which is told nothing but what all agents are.
type Egress = control.Client[ViewerEvent, Viewer]

// NewEgress returns a client of the gateway at base; see control.NewClient.
func NewEgress(base string, config *tls.Config, dial control.Dialer) (*Egress, error) {
	return control.NewClient[ViewerEvent, Viewer](base, config, dial)
}
