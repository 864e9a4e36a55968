package cli

import (
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/qos/hostagent"
)

func hostCommand(app *commands.App) *cobra.Command {
	return commands.Group("host", "Give this host's large connections further paths", `  sluice host run`, hostRunCommand(app))
}

func hostRunCommand(app *commands.App) *cobra.Command {
	threshold, subflows, most, dscp := config.Size(1<<20), 3, 256, 11
	state := "/run/sluice/host-path-manager"
	var addresses []string
	var metrics commands.MetricsServer
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Open further subflows of large MPTCP connections",
		Long: `Runs until it gets SIGINT or SIGTERM, as root, on a host whose kernel has MPTCP (Linux 5.19
or later) and nft. A connection that has carried --threshold bytes gets a further
subflow, another at twice that, and so on; the controller gives each a path of its own
(qos.subflows). A subflow that then carries next to nothing is ended. It listens
nowhere, except for --metrics.

Connections that begin while it runs have their path manager in user space, and SYNs of
further subflows get the mark --dscp, by a table of nftables of its own. If another
program changes either, it is put back within a second, and counted. Both are taken
back when it ends. A second one beside it is refused. The host at the other end runs it
too, or has let its kernel take more subflows (ip mptcp limits set subflows 8).

Applications that do not ask for MPTCP do with "mptcpize run PROGRAM"; servers written in
Go offer it by themselves.`,
		Example: `  sluice host run
  sluice host run --threshold 10MB --subflows 7
  sluice host run --address 10.0.0.2 --address 10.1.0.2`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			o := hostagent.Options{
				Policy: hostagent.Policy{Threshold: uint64(threshold), Subflows: subflows, Most: most}, DSCP: dscp, State: state,
				Drift: drift.NewCounts(log), Log: log,
			}
			for _, text := range addresses {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return &command.UsageError{Err: fmt.Errorf("--address %s: want an address of this host, like 10.0.0.2", text)}
				}
				o.Addresses = append(o.Addresses, a)
			}
			if err := o.Check(); err != nil {
				return &command.UsageError{Err: err}
			}
			if err := metrics.Open(); err != nil {
				return err
			}
			m := prometheus.NewRegistry()
			m.MustRegister(drift.NewCollector("host_agent", o.Drift.List))
			defer metrics.Serve(m, log)()
			return hostagent.New(o).Run(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	flags.TextVar(&threshold, "threshold", threshold, "what a connection has carried when it gets its first further subflow, and for each further one")
	flags.IntVar(&subflows, "subflows", subflows, "how many further subflows a connection has at most")
	flags.IntVar(&most, "most", most, "how many further subflows all connections have at most")
	flags.IntVar(&dscp, "dscp", dscp, "the mark of their SYNs, as qos.subflows.dscp of the controller")
	flags.StringArrayVar(&addresses, "address", nil, "an address of this host from which they are opened, in turn; without it that of the connection")
	flags.StringVar(&state, "state", state, "file in which it notes which path manager there was before; each network namespace needs one of its own")
	metrics.Flag(flags)
	return cmd
}
