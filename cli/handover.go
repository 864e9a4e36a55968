package cli

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/plugin"
)

const handoverPath = api.Prefix + "/" + plugin.Name + "/"

func handoverCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handover",
		Short: "Let devices move and keep every connection",
		Example: `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1
  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02
  sluice handover list --device car7
  sluice handover move car7 --port 00000000000000a1/3`,
	}
	cmd.AddCommand(handoverStatusCommand(app), handoverStatsCommand(app), handoverRootsCommand(app),
		handoverClassesCommand(app), handoverPoolsCommand(app), handoverDevicesCommand(app), handoverLeasesCommand(app),
		handoverListCommand(app), handoverShowCommand(app), handoverMoveCommand(app), handoverPrepareCommand(app), handoverAnnounceCommand(app),
		handoverCoverageCommand(app), handoverPositionsCommand(app), handoverNeighboursCommand(app), handoverRoamingCommand(app))
	return cmd
}

func handoverStatusCommand(app *App) *cobra.Command {
	return GetCommand(app, "status", "Show state and errors", handoverPath+"status", func(w io.Writer, s plugin.Status) {
		fmt.Fprintf(w, "ready\t%v\n", s.Ready)
		if s.Domain != "" {
			fmt.Fprintf(w, "domain\t%s\n", s.Domain)
		}
		fmt.Fprintf(w, "devices\t%d, %d attached, %d in other domains\nleases\t%d\npools\t%d\nclasses\t%d\nprepared\t%d places\ndaemons\t%d listen\nwaiting\t%d\n",
			s.Devices, s.Attached, s.Away, s.Leases, s.Pools, s.Classes, s.Prepared, s.Daemons, s.Waiting)
		for _, e := range s.Errors {
			fmt.Fprintf(w, "error\t%s\n", e)
		}
	})
}

func handoverStatsCommand(app *App) *cobra.Command {
	return GetCommand(app, "stats", "Show times and rule changes of the handovers that are remembered", handoverPath+"stats", func(w io.Writer, s plugin.Stats) {
		fmt.Fprintf(w, "attachments and moves\t%d, %d failed\nmoves\t%d, %d seamless, %d prepared\nrules\t%d added, %d modified, %d deleted\n\n",
			s.Handovers, s.Failed, s.Moves, s.Seamless, s.Prepared, s.Changes.Added, s.Changes.Modified, s.Changes.Deleted)
		fmt.Fprintln(w, "PART\tMEDIAN\tP99\tMAX")
		for _, name := range slices.Sorted(maps.Keys(s.Parts)) {
			q := s.Parts[name]
			fmt.Fprintf(w, "%s\t%v\t%v\t%v\n", name, shortDuration(q.P50), shortDuration(q.P99), shortDuration(q.Max))
		}
	})
}

func shortDuration(d plugin.Duration) time.Duration {
	return time.Duration(d).Round(10 * time.Microsecond)
}

func handoverRootsCommand(app *App) *cobra.Command {
	return GetCommand(app, "roots", "List the ports where the mobility network meets the rest", handoverPath+"roots", func(w io.Writer, all []plugin.RootInfo) {
		fmt.Fprintln(w, "NAME\tPORT\tLEADS TO\tUP")
		for _, r := range all {
			to := "the world"
			if r.Peer != "" {
				to = "domain " + r.Peer
			}
			fmt.Fprintf(w, "%s\t%v\t%s\t%v\n", r.Name, r.Port, to, r.Up)
		}
	})
}

func handoverListCommand(app *App) *cobra.Command {
	var device, kind, result string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List what happened to devices, the latest first", Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []plugin.Record
			q := query("device", device, "kind", kind, "result", result, "limit", strconv.Itoa(limit))
			return app.get(cmd, handoverPath+"handovers"+q, &all, func(w io.Writer) { printHandovers(w, all) })
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "only records of this device")
	cmd.Flags().Var(command.Word(&kind, "", "attach", "move", "prepare", "detach", "reroute"), "kind", "only records of this kind")
	cmd.Flags().Var(command.Word(&result, "", "done", "failed"), "result", "only records that ended so")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many")
	return cmd
}

func printHandovers(w io.Writer, all []plugin.Record) {
	fmt.Fprintln(w, "ID\tTIME\tDEVICE\tKIND\tPOLICY\tFROM\tTO\tRULES\tDHCP\tTRIGGER\tCHANGES\tRESULT")
	for _, r := range all {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%v\t%v\t+%d ~%d -%d on %d\t%s %s\n", r.ID, r.Started.Local().Format(time.TimeOnly), r.Device, r.Kind,
			handoverPolicy(r), spot(r.From), spot(r.To), shortDuration(r.Parts.Tf), shortDuration(r.Parts.Td), shortDuration(r.Parts.Trigger),
			r.Changes.Added, r.Changes.Modified, r.Changes.Deleted, r.Changes.Switches, r.Result, r.How)
	}
}

func handoverPolicy(r plugin.Record) string {
	text := r.Policy
	if r.Prepared {
		text += ", prepared"
	}
	return text
}

func spot(s *plugin.Spot) string {
	if s == nil {
		return "-"
	}
	return s.String()
}

func handoverShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one record: way, join, time by part", Args: command.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r plugin.Record
			return app.get(cmd, handoverPath+"handovers/"+url.PathEscape(args[0]), &r, func(w io.Writer) {
				printHandovers(w, []plugin.Record{r})
				p := r.Parts
				fmt.Fprintf(w, "\ncause\t%s\njoin\t%s\nway\t%s\n", r.Cause, r.Join, strings.Join(r.Path, " "))
				fmt.Fprintf(w, "T_c\t%v\n  T_a, association\t%v\n  T_d, DHCP\t%v (waiting %v, store %v)\n  T_f, rules\t%v (model %v)\n  T_e, device to edge\t%v\n",
					shortDuration(p.Tc), shortDuration(p.Ta), shortDuration(p.Td), shortDuration(p.Queue), shortDuration(p.Store), shortDuration(p.Tf), shortDuration(p.Model), shortDuration(p.Te))
				fmt.Fprintf(w, "took\t%v\n", shortDuration(r.Took))
				if r.Fallback != "" {
					fmt.Fprintf(w, "not seamless\t%s\n", r.Fallback)
				}
			})
		},
	}
}

func handoverNeighboursCommand(app *App) *cobra.Command {
	return GetCommand(app, "neighbours", "List the neighbouring domains", handoverPath+"neighbours", func(w io.Writer, all []domain.NeighbourStatus) {
		fmt.Fprintln(w, "NAME\tURL\tPEERING\tHEARD\tVISITORS\tABROAD\tOWED\tPREFIXES\tFAULT")
		for _, n := range all {
			heard := "never"
			if n.Heard != nil {
				heard = n.Heard.Local().Format(time.DateTime)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", n.Name, n.URL, n.Peering, heard, n.Visitors, n.Abroad, n.Owed, strings.Join(n.Prefixes, ","), n.Fault)
		}
	})
}

func handoverRoamingCommand(app *App) *cobra.Command {
	return GetCommand(app, "roaming", "List devices that are abroad, visiting, or on their way", handoverPath+"roaming", func(w io.Writer, all []domain.Roaming) {
		fmt.Fprintln(w, "DEVICE\tHOME\tADDRESS\tIN\tFROM\tTO\tMOVE\tOWED")
		for _, r := range all {
			move := ""
			if r.Peer != "" {
				move = fmt.Sprintf("%s: %s", r.Peer, r.Stage)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.ID, r.Home, r.IP, r.Host, r.Upstream, r.Downstream, move, r.Owed)
		}
	})
}
