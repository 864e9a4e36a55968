package cli

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/qos/classifier"
)

func classifierCommand(app *commands.App) *cobra.Command {
	var database string
	var metrics commands.MetricsServer
	cmd := &cobra.Command{
		Use:   "classifier",
		Short: "Bring packets of a userspace datapath into the kernel's classes",
		Long: `Runs beside an Open vSwitch whose bridges forward in user space (datapath_type
netdev), as root, until it gets SIGINT or SIGTERM. It reads from the local database
which DSCP marks which queue, and keeps at each port the filter that brings marked
packets into their class and gives them their own DSCP back. A filter or a queue that
another program has removed is there again after a second, and counted. It listens
nowhere, except for --metrics. Bridges on the kernel's datapath need none of it.

What it has installed goes on working when it ends, and goes with the queues.`,
		Example: `  sluice classifier
  sluice classifier --database unix:/run/openvswitch/db.sock`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			counts := drift.NewCounts(log)
			d, err := classifier.New(classifier.Options{Database: database, Drift: counts, Log: log})
			if err != nil {
				return &command.UsageError{Err: err}
			}
			if err := metrics.Open(); err != nil {
				return err
			}
			m := prometheus.NewRegistry()
			m.MustRegister(drift.NewCollector("classifier", counts.List))
			defer metrics.Serve(m, log)()
			log.Info("classifier runs", "database", database)
			return d.Run(cmd.Context())
		}),
	}
	cmd.Flags().StringVar(&database, "database", classifier.DefaultDatabase, "socket of the local database")
	metrics.Flag(cmd.Flags())
	return cmd
}
