package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/network/trace"
)

const networkPath = api.Prefix + "/network/"

func networkCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Show switches, links, hosts, paths and rules; trace packets",
		Example: `  sluice network switches
  sluice network path 10.0.0.1 10.0.0.2 --metric latency --count 3
  sluice network rules --owner sos
  sluice network trace tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80`,
	}
	cmd.AddCommand(networkSwitchesCommand(app), networkPortsCommand(app), networkLinksCommand(app), networkHistoryCommand(app), networkTalkersCommand(app), networkHostsCommand(app),
		networkPathCommand(app), networkRulesCommand(app), networkTraceCommand(app))
	return cmd
}

// networkSwitchesCommand lists identifiers beside names, as no other table does.
func networkSwitchesCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use: "switches", Short: "List the connected switches", Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Switch
			if err := app.Send(cmd, http.MethodGet, networkPath+"switches", nil, &all); err != nil {
				return err
			}
			return app.Print(all, func(w io.Writer) {
				fmt.Fprintln(w, "DPID\tNAME\tADDRESS\tSINCE\tPORTS\tRULES\tREWRITES\tSOFTWARE")
				for _, s := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s %s\n", s.DPID, s.Name, s.Address, s.Since.Local().Format(time.DateTime), s.Ports, s.Rules, s.Rewrite, s.Hardware, s.Software)
				}
			})
		},
	}
}

func networkPortsCommand(app *App) *cobra.Command {
	var of string
	cmd := &cobra.Command{
		Use:   "ports",
		Short: "List ports with their traffic",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Port
			return app.get(cmd, networkPath+"ports"+query("switch", of), &all, func(w io.Writer) {
				fmt.Fprintln(w, "PORT\tNAME\tSTATE\tLEADS TO\tRECEIVES\tSENDS\tDROPS/S")
				for _, p := range all {
					state, leads := "down", "switch"
					if p.Up {
						state = "up"
					}
					if p.Edge {
						leads = "hosts"
					}
					rx, tx, drops := "-", "-", "-"
					if t := p.Traffic; t != nil {
						rx, tx, drops = bitRate(t.RxBits), bitRate(t.TxBits), strconv.FormatFloat(t.RxDropped+t.TxDropped, 'f', 0, 64)
					}
					fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Switch, p.Port, p.Name, state, leads, rx, tx, drops)
				}
			})
		},
	}
	cmd.Flags().StringVar(&of, "switch", "", "only ports of this switch: datapath identifier, or name in the configuration")
	return cmd
}

func networkHostsCommand(app *App) *cobra.Command {
	var ip, mac string
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "List the known end hosts",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Host
			return app.get(cmd, networkPath+"hosts"+query("ip", ip, "mac", mac), &all, func(w io.Writer) {
				fmt.Fprintln(w, "MAC\tVLAN\tAT\tSEEN\tADDRESSES")
				for _, h := range all {
					vlan := "-"
					if h.VLAN != 0 {
						vlan = strconv.Itoa(int(h.VLAN))
					}
					addresses := make([]string, len(h.IPs))
					for i, a := range h.IPs {
						addresses[i] = a.String()
					}
					fmt.Fprintf(w, "%s\t%s\t%s/%d\t%s\t%s\n", h.MAC, vlan, h.At.Switch, h.At.Port, h.Seen.Local().Format(time.DateTime), strings.Join(addresses, " "))
				}
			})
		},
	}
	cmd.Flags().StringVar(&ip, "ip", "", "only the host with this address")
	cmd.Flags().StringVar(&mac, "mac", "", "only hosts with this MAC address")
	return cmd
}

func networkPathCommand(app *App) *cobra.Command {
	var metric, kind string
	var count int
	cmd := &cobra.Command{
		Use:   "path FROM TO",
		Short: "Search paths between two places",
		Long: `Searches paths from one place to another. A place is the IP or MAC address of a
known host, or a port, written SWITCH/PORT.`,
		Example: `  sluice network path 10.0.0.1 10.0.0.2
  sluice network path 10.0.0.1 00000000000000a2/1 --metric hops --kind disjoint --count 2`,
		Args: command.ExactArgs("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []networkapi.Path
			q := query("from", args[0], "to", args[1], "metric", metric, "kind", kind, "count", strconv.Itoa(count))
			return app.get(cmd, networkPath+"paths"+q, &all, func(w io.Writer) {
				if len(all) == 0 {
					fmt.Fprintln(w, "There is no path.")
				}
				for i, p := range all {
					fmt.Fprintf(w, "%d.\tcost %.4g\tlatency %.2f ms", i+1, p.Cost, p.Latency)
					if p.Free > 0 {
						fmt.Fprintf(w, "\tfree %s", bitRate(p.Free))
					}
					fmt.Fprintln(w)
					for _, h := range p.Hops {
						fmt.Fprintf(w, "\t%s\tin %d, out %d\n", h.Switch, h.In, h.Out)
					}
				}
			})
		},
	}
	cmd.Flags().Var(command.Word(&metric, "latency", "hops", "latency", "utilisation", "capacity"), "metric", "what the paths minimise (for capacity: maximise)")
	cmd.Flags().Var(command.Word(&kind, "shortest", "shortest", "disjoint", "widest"), "kind", "the best paths, the best without a common link, or the one with the most free capacity")
	cmd.Flags().IntVar(&count, "count", 1, "how many at most")
	return cmd
}

func networkRulesCommand(app *App) *cobra.Command {
	var of, owner string
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the rules that services and the core want, with owner and counters",
		Long: `Lists the controller's ledger: what each owner wants in the switches. A rule is
confirmed when its switch has acknowledged it.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Rule
			return app.get(cmd, networkPath+"rules"+query("switch", of, "owner", owner), &all, func(w io.Writer) {
				fmt.Fprintln(w, "SWITCH\tOWNER\tNAME\tSTAGE\tPRIORITY\tPACKETS\tMATCH\tACTIONS")
				for _, r := range all {
					confirmed := ""
					if !r.Confirmed && r.Owner != forwardingOwner {
						confirmed = " (not confirmed)"
					}
					match := r.Match
					if match == "" {
						match = "any"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s%s\n", r.Switch, r.Owner, r.Name, r.Stage, r.Priority, r.Packets, match, r.Actions, confirmed)
				}
			})
		},
	}
	cmd.Flags().StringVar(&of, "switch", "", "only rules of this switch: datapath identifier, or name in the configuration")
	cmd.Flags().StringVar(&owner, "owner", "", "only rules of this owner, like sos or forwarding")
	return cmd
}

func networkTraceCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "trace PACKET",
		Short: "Say which rule of which owner handles a packet at each hop, and why",
		Long: `Follows a described packet through the rules of the switches. The description
uses the words of ofproto/trace. Where the packet comes in, in_port and switch
say, or else its source address.`,
		Example: `  sluice network trace tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=40000,tp_dst=80,tcp_flags=syn
  sluice network trace switch=00000000000000a1,in_port=1,arp,arp_tpa=10.0.0.2`,
		Args: command.AtLeast("PACKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var t trace.Trace
			return app.get(cmd, networkPath+"trace"+query("packet", strings.Join(args, " ")), &t, func(w io.Writer) { fmt.Fprint(w, t.String()) })
		},
	}
}

// forwardingOwner writes rules without waiting for the switch's word: that they
// are not confirmed is no news.
const forwardingOwner = "forwarding"

// query writes the pairs whose value is not empty.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

func bitRate(bits float64) string {
	for _, u := range []struct {
		n    float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= u.n {
			return fmt.Sprintf("%.3g %s", bits/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.0f bit/s", bits)
}
