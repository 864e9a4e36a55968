package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
)

func controllerCommand(app *commands.App, services []commands.Service) *cobra.Command {
	definitions := commands.Definitions(services)
	defaults := func() *config.Controller { return config.DefaultController(kit.Sections(definitions)) }
	return commands.Daemon(app, &cobra.Command{
		Use:   "controller",
		Short: "Run the controller",
		Long: `Runs the controller until it gets SIGINT or SIGTERM. The rules stay in the switches,
so that established traffic goes on, and a restarted controller adopts them. After
SIGHUP the controller reads its configuration again, and the log names changed settings
that need a restart. A file with errors, without any setting, or that is not a regular
file changes nothing. These settings take effect without a restart:

  ` + strings.Join(config.Reloadable(defaults()), "\n  ") + `

Without a configuration the controller listens only on loopback: on port 6653 for
switches, and on port 8080 for the API. It creates a token for the API and writes it
into its data folder.`,
		Example: `  sluice controller
  sluice controller --config /etc/sluice/controller.yaml
  sluice controller --set log.level=debug --set store.kind=memory`,
	}, defaults, func(ctx context.Context, r *commands.Running[*config.Controller]) error {
		for _, w := range r.Config.Warnings {
			r.Log.Warn("configuration", "warning", w)
		}
		c, err := controller.New(ctx, controller.Options{Config: r.Config, Log: r.Log, Services: definitions})
		if err != nil {
			return fmt.Errorf("start the %w", err)
		}
		r.Reloads(ctx, c.Reload)
		return c.Run(ctx)
	})
}
