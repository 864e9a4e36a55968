package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/egress"
)

func cinemaEgressCommand(app *commands.App) *cobra.Command {
	return commands.AgentDaemonOf(app, &cobra.Command{
		Use:   "egress",
		Short: "Run an egress gateway, at which people watch channels",
		Long: `Runs an egress gateway until it gets SIGINT or SIGTERM; its viewers then go on at
another one. It has a site for people at its public interface, serves players by WHEP,
and asks its controller for the channels that viewers want.

With CAP_NET_ADMIN its sockets have room for longer groups of pictures at once than
net.core.rmem_max permits.`,
		Example: `  sluice config example cinema-egress > egress.yaml
  sluice cinema egress --config egress.yaml`,
	}, "cinema/egress", DefaultEgress, func(ctx context.Context, cfg *Egress, a commands.Agent) error {
		spec, c, err := commands.Announcement(a.Agent, a.Control.TLS.Files())
		if err != nil {
			return err
		}
		defer c.Close()
		gateway, err := egressConfig(cfg, a)
		if err != nil {
			return err
		}
		gateway.Name, gateway.Controller = spec.Name, egress.NewController(c)
		return egress.Run(ctx, gateway)
	})
}

// egressConfig converts the configuration of the command to that of package egress.
func egressConfig(c *Egress, a commands.Agent) (egress.Config, error) {
	out := egress.Config{
		Version: version.Get().Version, Log: a.Log,
		Control: c.Control.Listen.String(), ControlTLS: a.TLS,
		Data: c.First(), Ports: control.PortRange(c.Data.Ports), Shared: c.Data.Buckets == "gateway",
		Public: c.Public.Listen.String(), URL: c.URL(), Media: c.Media(),
		MaxViewers: c.MaxViewers, MaxPerAddress: c.MaxPerAddress, Proxies: c.Public.Proxies(), Burst: c.Burst, MakeBeforeBreak: c.MakeBeforeBreak, Times: egress.DefaultTimes(),
	}
	var err error
	out.PublicTLS, err = publicTLS(c.Public)
	return out, err
}
