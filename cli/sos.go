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
	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/sos/plugin"
)

const sosPath = api.Prefix + "/" + plugin.Name + "/"

func sosCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sos",
		Short: "Carry transfers over long links by agents",
		Example: `  sluice sos agents add west --url https://192.0.2.10:8440 --addr 10.0.1.10
  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 443
  sluice sos sessions
  sluice sos config set connections=8 paths=2`,
	}
	cmd.AddCommand(sosStatusCommand(app), sosStatsCommand(app), sosSessionsCommand(app), sosSessionCommand(app), sosEndCommand(app),
		sosWhitelistCommand(app), sosAgentsCommand(app), sosConfigCommand(app), sosSwitchCommand(app, "enable", "Take new connections"),
		sosSwitchCommand(app, "disable", "Take no new connections; sessions under way go on"))
	return cmd
}

func sosStatusCommand(app *App) *cobra.Command {
	return GetCommand(app, "status", "Show state and errors", sosPath+"status", printSOSStatus)
}

func printSOSStatus(w io.Writer, s plugin.Status) {
	fmt.Fprintf(w, "enabled\t%v\nready\t%v\nwhitelist\t%d entries, %d active now\nagents\t%d, %d up\nsessions\t%d, %d being set up\n",
		s.Enabled, s.Ready, s.Entries, s.Active, s.Agents, s.AgentsUp, s.Sessions, s.Setups)
	for _, d := range s.Direct {
		fmt.Fprintf(w, "direct\t%d for reason %s, the latest at %s: %s; %s\n", d.Count, d.Reason, d.Latest.Local().Format(time.TimeOnly), d.Cause, d.Remedy)
	}
	for _, e := range s.Errors {
		fmt.Fprintf(w, "error\t%s\n", e)
	}
}

func sosSwitchCommand(app *App, word, short string) *cobra.Command {
	return &cobra.Command{
		Use:   word,
		Short: short,
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s plugin.Status
			if err := app.Send(cmd, http.MethodPost, sosPath+word, nil, &s); err != nil {
				return err
			}
			return app.Print(s, func(w io.Writer) { printSOSStatus(w, s) })
		},
	}
}

func sosSessionsCommand(app *App) *cobra.Command {
	var state string
	var limit int
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List live and past sessions",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []plugin.Record
			path := sosPath + "sessions" + query("state", state, "limit", strconv.Itoa(limit))
			return app.get(cmd, path, &all, func(w io.Writer) { printSOSSessions(w, all) })
		},
	}
	cmd.Flags().Var(command.Word(&state, "all", "live", "past", "all"), "state", "which sessions")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, the latest first")
	return cmd
}

func printSOSSessions(w io.Writer, all []plugin.Record) {
	fmt.Fprintln(w, "ID\tSTATE\tCLIENT\tSERVER\tAGENTS\tSETUP\tUP\tDOWN\tRATE\tTOOK\tENDED")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s>%s\t%v\t%d\t%d\t%s\t%v\t%s\n", r.ID, r.State, r.Client, r.Server, r.ClientAgent, r.ServerAgent,
			round(r.Setup.Total), r.BytesUp, r.BytesDown, bitRate(r.BitsPerSecond), round(r.Took), r.How)
	}
}

func round(d agentapi.Duration) time.Duration {
	return time.Duration(d).Round(100 * time.Microsecond)
}

func sosSessionCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "session ID",
		Short: "Show a session: ways, parameters, set-up by step, course",
		Args:  command.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r plugin.Record
			return app.get(cmd, sosPath+"sessions/"+url.PathEscape(args[0]), &r, func(w io.Writer) { printSOSSession(w, r) })
		},
	}
}

func printSOSSession(w io.Writer, r plugin.Record) {
	printSOSSessions(w, []plugin.Record{r})
	fmt.Fprintf(w, "\nclient's way\t%s\n", strings.Join(r.ClientPath, " "))
	for _, p := range r.AgentPaths {
		fmt.Fprintf(w, "agents' way\t%s\n", strings.Join(p, " "))
	}
	fmt.Fprintf(w, "server's way\t%s\nconnections\t%d %s\nretransmits\t%d\n", strings.Join(r.ServerPath, " "), r.Connections, r.Why, r.Retransmits)
	if r.CongestionUp+r.CongestionDown != "" {
		fmt.Fprintf(w, "congestion\t%s up, %s down, %d switches\n", r.CongestionUp, r.CongestionDown, r.Switches)
	}
	st := r.Setup
	fmt.Fprintf(w, "set-up\tselect %v, prepare %v, rules %v, commit %v, client %v\n",
		round(st.Select), round(st.Prepare), round(st.Rules), round(st.Commit), round(st.Client))
	for _, x := range r.Samples {
		fmt.Fprintf(w, "%s\t%d up\t%d down\n", x.At.Local().Format(time.TimeOnly), x.BytesUp, x.BytesDown)
	}
}

func sosEndCommand(app *App) *cobra.Command {
	return RemoveCommand(app, "end ID", "End a session with a reset to both ends", sosPath+"sessions")
}

func sosStatsCommand(app *App) *cobra.Command {
	return GetCommand(app, "stats", "Show totals, live and past sessions", sosPath+"stats", func(w io.Writer, s plugin.Stats) {
		fmt.Fprintf(w, "live %d, past %d, %d bytes, set-up median %v, 99th percentile %v\n",
			len(s.Live), len(s.Past), s.Bytes, round(s.SetupP50), round(s.SetupP99))
		fmt.Fprintf(w, "in all %d carried, %d direct, %d bytes up, %d down\n",
			s.Totals.Carried, s.Totals.Direct, s.Totals.BytesUp, s.Totals.BytesDown)
		printSOSSessions(w, append(s.Live, s.Past...))
	})
}

func sosAgentsCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "Add, list, drain and remove agents",
		Example: `  sluice sos agents add west --url https://192.0.2.10:8440 --addr 10.0.1.10
  sluice sos agents list
  sluice sos agents drain west
  sluice sos agents remove west`,
	}
	list := GetCommand(app, "list", "List the agents", sosPath+"agents", printSOSAgents)
	var spec plugin.AgentSpec
	add := &cobra.Command{
		Use: "add NAME", Short: "Add an agent", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			return app.sosAgent(cmd, "agents", spec)
		},
	}
	add.Flags().StringVar(&spec.URL, "url", "", "where its control API listens, like https://192.0.2.7:8440")
	add.Flags().StringSliceVar(&spec.Addrs, "addr", nil, "its data address; twice for IPv4 and IPv6")
	add.Flags().IntVar(&spec.MaxSessions, "max-sessions", 0, "bound of its sessions; 0: it decides")
	var force bool
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove an agent", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := sosPath + "agents/" + url.PathEscape(args[0]) + "?force=" + strconv.FormatBool(force)
			return app.Send(cmd, http.MethodDelete, path, nil, nil)
		},
	}
	remove.Flags().BoolVar(&force, "force", false, "remove it although it carries sessions; they end with a reset")
	var off bool
	drain := &cobra.Command{
		Use: "drain NAME", Short: "Give an agent no new sessions, or give it some again", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.sosAgent(cmd, "agents/"+url.PathEscape(args[0])+"/drain", agentapi.DrainRequest{On: !off})
		},
	}
	drain.Flags().BoolVar(&off, "off", false, "give it sessions again")
	cmd.AddCommand(list, add, remove, drain)
	return cmd
}

func (a *App) sosAgent(cmd *cobra.Command, path string, in any) error {
	var i plugin.AgentInfo
	if err := a.Send(cmd, http.MethodPost, sosPath+path, in, &i); err != nil {
		return err
	}
	return a.Print(i, func(w io.Writer) { printSOSAgents(w, []plugin.AgentInfo{i}) })
}

func printSOSAgents(w io.Writer, all []plugin.AgentInfo) {
	fmt.Fprintln(w, "NAME\tSTATE\tDRAINING\tSESSIONS\tIN\tOUT\tCPU\tADDRESSES\tURL\tERROR")
	for _, i := range all {
		var addrs []string
		for _, addr := range i.Addrs {
			at := i.Places[addr.String()]
			if at == "" {
				at = "not found"
			}
			addrs = append(addrs, addr.String()+" at "+at)
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\t%s\t%.2f\t%s\t%s\t%s\n", i.Name, i.State, i.Draining || i.Load.Draining, i.Sessions,
			bitRate(i.Load.BitsPerSecondIn), bitRate(i.Load.BitsPerSecondOut), i.Load.CPU, strings.Join(addrs, ", "), i.URL, i.Error)
	}
}
