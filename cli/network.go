package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/network/trace"
)

const networkPath = api.Prefix + "/network/"

func networkCommand(app *commands.App) *cobra.Command {
	return commands.Group("network", "Show switches, links, hosts, paths and rules; trace packets", `  sluice network switches
  sluice network path 10.0.0.1 10.0.0.2 --metric latency --count 3
  sluice network rules --owner sos
  sluice network trace tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80`,
		networkSwitchesCommand(app), networkPortsCommand(app),
		commands.Get(app, "links", "List the links between switches, each direction by itself", networkPath+"links", commands.Table[networkapi.Link](
			"from to latency_milliseconds jitter_milliseconds loss loss_packets=OF loss_at=UNTIL queue_loss queue_loss_at=UNTIL capacity_bits_per_second used_bits_per_second available_bits_per_second")),
		networkHistoryCommand(app), networkTalkersCommand(app), networkHostsCommand(app),
		networkPathCommand(app), networkRulesCommand(app), networkTraceCommand(app))
}

// networkSwitchesCommand returns the command that lists switches. Its table is the only one that shows
// identifiers and names of switches side by side.
func networkSwitchesCommand(app *commands.App) *cobra.Command {
	table := commands.Table[networkapi.Switch]("dpid name address since ports rules drift drifted_at=DRIFTED rewrite=REWRITES hardware software")
	return &cobra.Command{
		Use: "switches", Short: "List the connected switches", Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Switch
			if err := app.Call(cmd, http.MethodGet, networkPath+"switches", nil, &all, nil); err != nil {
				return err
			}
			return app.Print(all, func(w io.Writer) { table(w, all) })
		},
	}
}

const ofSwitch = "of this switch: datapath identifier, or name in the configuration"

func networkPortsCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "ports", "List ports with their traffic", networkPath+"ports", commands.Table[networkapi.Port](
		"switch/port name up edge=HOSTS traffic.rx_bits_per_second=RECEIVES traffic.tx_bits_per_second=SENDS traffic.rx_dropped_per_second=RX_DROPS/S traffic.tx_dropped_per_second=TX_DROPS/S"))
	cmd.Flags().String("switch", "", "only ports "+ofSwitch)
	return cmd
}

func networkTalkersCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "talkers", "List the largest traffic, as estimated from sampled packets", networkPath+"talkers", commands.Table[networkapi.Talker](
		"at src=FROM src_port=PORT dst=TO dst_port=PORT protocol bits_per_second=RATE error=WITHIN"))
	cmd.Long = `Lists the largest traffic between two addresses over the last seconds. It is estimated
from sampled packets, so switches must send sFlow (network.measure in the
configuration). Without --at, traffic is counted where it enters from hosts.`
	cmd.Example = `  sluice network talkers --limit 5
  sluice network talkers --at 00000000000000a2/1`
	cmd.Flags().String("at", "", "only traffic that enters a switch by this port, SWITCH/PORT")
	cmd.Flags().Int("limit", 20, "how many at most")
	return cmd
}

func networkHostsCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "hosts", "List the known end hosts", networkPath+"hosts", commands.Table[networkapi.Host]("mac vlan at seen ips=ADDRESSES"))
	cmd.Flags().String("ip", "", "only the host with this address")
	cmd.Flags().String("mac", "", "only hosts with this MAC address")
	return cmd
}

func networkPathCommand(app *commands.App) *cobra.Command {
	table := commands.Table[networkapi.Path]("cost latency_milliseconds free_bits_per_second hops")
	cmd := &cobra.Command{
		Use:   "path FROM TO",
		Short: "Search paths between two places",
		Long: `Searches paths from one place to another. A place is the IP or MAC address of a
known host, or a port, written SWITCH/PORT.`,
		Example: `  sluice network path 10.0.0.1 10.0.0.2
  sluice network path 10.0.0.1 00000000000000a2/1 --metric hops --kind disjoint --count 2`,
		Args: command.ExactArgs("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return commands.Ask(app, cmd, http.MethodGet, networkPath+"paths"+commands.Query(cmd, "from", args[0], "to", args[1]), nil, table)
		},
	}
	var metric, kind string
	cmd.Flags().Var(command.Word(&metric, "latency", "hops", "latency", "utilisation", "capacity"), "metric", "what the paths minimise (for capacity: maximise)")
	cmd.Flags().Var(command.Word(&kind, "shortest", "shortest", "disjoint", "widest"), "kind", "the best paths, the best without a common link, or the one with the most free capacity")
	cmd.Flags().Int("count", 1, "how many at most")
	return cmd
}

func networkRulesCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "rules", "List the rules that services and the core want, with owner and counters", networkPath+"rules", commands.Table[networkapi.Rule](
		"switch owner name table stage priority packets match actions confirmed"))
	cmd.Long = `Lists the controller's ledger: what each owner wants in the switches. A rule is
confirmed when its switch has acknowledged it; those of forwarding never are.`
	cmd.Flags().String("switch", "", "only rules "+ofSwitch)
	cmd.Flags().String("owner", "", "only rules of this owner, like sos or forwarding")
	return cmd
}

func networkTraceCommand(app *commands.App) *cobra.Command {
	return &cobra.Command{
		Use:   "trace PACKET",
		Short: "Show which rule of which owner handles a packet at each hop, and why",
		Long: `Follows a described packet through the rules of the switches. The description
uses the words of ofproto/trace. in_port and switch say where the packet enters. If
they are missing, it enters where the host with its source address is.`,
		Example: `  sluice network trace tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=40000,tp_dst=80,tcp_flags=syn
  sluice network trace switch=00000000000000a1,in_port=1,arp,arp_tpa=10.0.0.2`,
		Args: command.AtLeast("PACKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return commands.Ask(app, cmd, http.MethodGet, networkPath+"trace"+commands.Query(cmd, "packet", strings.Join(args, " ")), nil, func(w io.Writer, t trace.Trace) { fmt.Fprint(w, t.String()) })
		},
	}
}

func networkHistoryCommand(app *commands.App) *cobra.Command {
	var since string
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "history SWITCH/PORT",
		Short: "Show the measurements of a link within the last hour",
		Long: `Shows the measurements of the direction of a link that leaves a switch by the port.
"sluice network links" lists the links.`,
		Example: `  sluice network history 00000000000000a1/3 --since 10m
  sluice network history 00000000000000a1/3 --csv >link.csv`,
		Args: command.ExactArgs("SWITCH/PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asCSV && app.JSON {
				return &command.UsageError{Err: errors.New("--csv and --json exclude each other")}
			}
			path := networkPath + "links/history" + commands.Parameters("from", args[0], "since", since)
			if asCSV {
				var all []networkapi.LinkHistory
				if err := app.Call(cmd, http.MethodGet, path, nil, &all, nil); err != nil {
					return err
				}
				return writeLinkCSV(app.Out, all)
			}
			return commands.Ask(app, cmd, http.MethodGet, path, nil, func(w io.Writer, all []networkapi.LinkHistory) {
				for _, h := range all {
					commands.Fields(w, h)
				}
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "start of the measurements: how long ago, like 10m, or a time like 2026-01-31T12:00:00Z")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "comma-separated values, with the API's names and units")
	return cmd
}

// writeLinkCSV writes a line with the names of the columns, and one line for each measurement of a link.
// Unknown values are empty.
func writeLinkCSV(w io.Writer, all []networkapi.LinkHistory) error {
	rows := [][]string{append([]string{"from", "to"}, commands.Names[networkapi.LinkPoint]()...)}
	for _, h := range all {
		for _, p := range h.Points {
			rows = append(rows, append([]string{portName(h.From), portName(h.To)}, commands.Values(p)...))
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

func portName(p networkapi.Place) string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }
