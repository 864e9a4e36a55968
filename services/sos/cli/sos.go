package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/sos"
)

const sosPath = api.Prefix + "/" + sos.Name + "/"

func sosCommand(app *commands.App) *cobra.Command {
	turn := func(word, short string) *cobra.Command {
		return &cobra.Command{
			Use: word, Short: short, Args: command.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return commands.Ask(app, cmd, http.MethodPost, sosPath+word, nil, commands.Fields[sos.Status])
			},
		}
	}
	agents := commands.Agents(app, sos.Name)
	agents.AddCommand(commands.Get(app, "paths NAME", "List what an agent knows of its paths to others", sosPath+"agents/%s/paths", commands.Table[sos.PathInfo](
		"peer_agent=TO peer port bits_per_second=RATE source doubtful rtt loss queue pace_bits_per_second=PACE limit_bits_per_second=LIMIT delivered_bits_per_second=DELIVERED sessions phase seen")))
	return commands.Group("sos", "Carry transfers over long links by agents", `  sluice sos agents add west --url https://192.0.2.10:8440 --addr 10.0.1.10
  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 443
  sluice sos sessions
  sluice sos config set --tuning connections=8,paths=2`,
		commands.Get(app, "status", "Show state and errors", sosPath+"status", commands.Fields[sos.Status]),
		commands.Get(app, "stats", "Show totals", sosPath+"stats", func(w io.Writer, s sos.Stats) {
			s.Live, s.Past = nil, nil // "sos sessions" lists them
			commands.Fields(w, s)
		}),
		turn("enable", "Take new connections"),
		turn("disable", "Take no new connections; sessions under way go on"),
		commands.Get(app, "warm", "List the pairs of agents that have connections before their first session", sosPath+"warm", commands.Table[sos.WarmInfo](
			"client_agent=FROM server_agent=TO client_address server_address connections since error")),
		sosPathsCommand(app), sosSessionsCommand(app), sosWhitelistCommand(app), agents, sosConfigCommand(app))
}

func sosPathsCommand(app *commands.App) *cobra.Command {
	table := commands.Table[sos.PathInfo](
		"agent=FROM peer_agent=TO peer port bits_per_second=RATE source doubtful rtt loss queue pace_bits_per_second=PACE delivered_bits_per_second=DELIVERED seen")
	return commands.Get(app, "paths", "List what all agents know of their paths to others", sosPath+"paths", func(w io.Writer, all sos.AllPaths) {
		table(w, all.Paths)
		for _, line := range all.Unanswered {
			fmt.Fprintln(w, line)
		}
	})
}

func sosSessionsCommand(app *commands.App) *cobra.Command {
	list := commands.Get(app, "list", "List live and past sessions", sosPath+"sessions", commands.Table[sos.Record](
		"id state client server client_agent=FROM server_agent=TO setup.total=SETUP bytes_up=UP bytes_down=DOWN bits_per_second=RATE took how=ENDED"))
	var state string
	list.Flags().Var(command.Word(&state, "all", "live", "past", "all"), "state", "which sessions")
	list.Flags().Int("limit", 100, "at most so many, the latest first")
	return commands.Group("sessions", "List, show and end sessions", `  sluice sos sessions --state live
  sluice sos sessions show s17
  sluice sos sessions end s17`,
		list,
		commands.Get(app, "show ID", "Show a session: ways, parameters, set-up by step, course", sosPath+"sessions", commands.Fields[sos.Record]),
		commands.Remove(app, "end ID", "End a session with a reset to both ends", sosPath+"sessions"))
}

func sosWhitelistCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[sos.EntrySpec, sos.EntryInfo]{
		App: app, Singular: "an entry", Path: sosPath + "whitelist", Numbered: true,
		Columns: "id name clients servers ports start stop notes",
		Flags:   map[string]string{"clients": "from", "servers": "to", "ports": "port"},
	}
	remove := d.Remove()
	remove.Short += "; transfers under way go on"
	return commands.Group("whitelist", "Say which transfers are carried", `  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 443
  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 8000-8099 \
    --stop 2027-01-01T00:00:00Z --tuning connections=8
  sluice sos whitelist list
  sluice sos whitelist remove 5d41402abc4b`,
		d.List(), d.Show(), d.Add(), d.Set(), remove)
}

func sosConfigCommand(app *commands.App) *cobra.Command {
	set := commands.Send(app, "set", "Change the configuration; what is left out stays", http.MethodPatch, sosPath+"config", commands.Request[sos.ConfigChange]{}, commands.Fields[sos.Config])
	return commands.Group("config", "Show or change the configuration", "  sluice sos config set --metric hops --tuning connections=8,paths=2",
		commands.Get(app, "show", "Show the configuration", sosPath+"config", commands.Fields[sos.Config]), set)
}
