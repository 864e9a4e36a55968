package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/cinema/ingress"
)

func cinemaIngressCommand(app *commands.App) *cobra.Command {
	return commands.AgentDaemonOf(app, &cobra.Command{
		Use:   "ingress",
		Short: "Run an ingress gateway, which takes channels in",
		Long: `Runs an ingress gateway until it gets SIGINT or SIGTERM. It has the channels that its
controller tells it of: it reads their sources by ffmpeg, or producers publish them by
WHIP at its public interface, and it sends each into the network as one flow of RTP.

It needs CAP_NET_RAW and CAP_NET_ADMIN, to send to an address that no host has.`,
		Example: `  sluice config example cinema-ingress > ingress.yaml
  sluice cinema ingress --config ingress.yaml`,
	}, "cinema/ingress", DefaultIngress, func(ctx context.Context, cfg *Ingress, a commands.Agent) error {
		c, err := ingressConfig(cfg, a)
		if err != nil {
			return err
		}
		return ingress.Run(ctx, c)
	})
}

// ingressConfig converts the configuration of the command to that of package ingress.
func ingressConfig(c *Ingress, a commands.Agent) (ingress.Config, error) {
	out := ingress.Config{
		Log: a.Log, Version: version.Get().Version, Listen: c.Control.Listen.String(), TLS: a.TLS, Data: c.First(),
		Public: c.Public.Listen.AddrPort, PublicURL: strings.TrimRight(c.Public.URL, "/"), ICE: c.ICE.Addresses, Proxies: c.Public.Proxies(), MaxChannels: c.MaxChannels, FFmpeg: c.FFmpeg,
		Certificates: map[string]string{"control.tls": c.Control.TLS.Cert},
	}
	if c.Public.TLS.Enabled() {
		out.Certificates["public.tls"] = c.Public.TLS.Cert
	}
	var err error
	out.PublicTLS, err = publicTLS(c.Public)
	return out, err
}
