package egress

import (
	"context"
	"net/http"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Controller is the gateway's view of its controller. An error of its methods is a
// *client.Problem, or means that there was no answer.
type Controller interface {
	// Lineup returns the channels and gateways.
	Lineup(ctx context.Context) (gatewayapi.Lineup, error)
	// Wanted requests channels for a viewer. It returns when the switches copy them.
	Wanted(ctx context.Context, w gatewayapi.Wanted) (gatewayapi.Granted, error)
	// Thumbnail returns a small picture of a channel of the lineup.
	Thumbnail(ctx context.Context, channel string) (gatewayapi.Thumbnail, error)
}

// NewController returns a Controller that uses a client, which authenticates with the gateway's
// certificate.
func NewController(c *client.Client) Controller { return remote{c} }

type remote struct{ *client.Client }

const base = "/api/v1/cinema/"

func (r remote) Lineup(ctx context.Context) (l gatewayapi.Lineup, err error) {
	err = r.Get(ctx, base+"lineup", &l)
	return l, err
}

func (r remote) Wanted(ctx context.Context, w gatewayapi.Wanted) (g gatewayapi.Granted, err error) {
	err = r.Do(ctx, http.MethodPost, base+"wanted", w, &g)
	return g, err
}
