package doctor

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/config"
	cinema "github.com/sluice-net/sluice/services/cinema/cli"
)

// ForEgress checks whether this machine has what the configuration of an egress gateway needs:
// addresses, certificates, and a controller that can be reached.
func ForEgress(ctx context.Context, c *cinema.Egress) []Finding {
	server := reachable(ctx, c.Announce.Server)
	server.Check = "announce.server"
	out := []Finding{
		listen(ctx, "control.listen", c.Control.Listen), listen(ctx, "public.listen", c.Public.Listen), certificate("control.tls", c.Control.TLS),
		listen(ctx, "data.address", config.Address{AddrPort: netip.AddrPortFrom(c.First(), 0)}), server,
	}
	for _, a := range c.ICE.Addresses {
		out = append(out, listen(ctx, "ice.addresses", config.Address{AddrPort: netip.AddrPortFrom(a, 0)}))
	}
	if c.Public.TLS.Enabled() {
		out = append(out, certificate("public.tls", c.Public.TLS))
	}
	return about(Egress, append(out, clock()))
}
