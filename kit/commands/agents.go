package commands

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
)

// Agents returns the commands for the agents of a service.
func Agents(app *App, service string) *cobra.Command {
	d := Declared[control.AgentSpec, agents.AgentInfo]{
		App: app, Singular: "an agent", Path: api.Prefix + "/" + service + "/agents",
		Columns: "name state draining sessions load.bits_per_second_in=IN load.bits_per_second_out=OUT load.cpu=CORES drift addrs=ADDRESSES places url error",
		Flags:   map[string]string{"addrs": "addr"},
	}
	remove := d.Remove()
	remove.Flags().Bool("force", false, "remove the agent even if it carries sessions, which then end with a reset")
	return Group("agents", "Add, list, drain and remove agents", strings.ReplaceAll(`  sluice SERVICE agents add west --url https://192.0.2.10:8440 --addr 10.0.1.10
  sluice SERVICE agents list
  sluice SERVICE agents drain west
  sluice SERVICE agents remove west`, "SERVICE", service),
		d.List(), d.Add(), remove, Drain(d, "Give an agent no new sessions, or give it some again", "give it sessions again"))
}

// Drain returns the command that drains a declared item. off describes the flag --off.
func Drain[S, I any](d Declared[S, I], short, off string) *cobra.Command {
	var again bool
	cmd := &cobra.Command{
		Use: "drain NAME", Short: short, Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Ask(d.App, cmd, http.MethodPost, FillPath(d.Path+"/%s/drain", args), control.DrainRequest{On: !again}, d.one)
		},
	}
	cmd.Flags().BoolVar(&again, "off", false, off)
	return cmd
}
