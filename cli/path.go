package cli

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/network/topology"
)

const pathPath = api.Prefix + "/path/"

func pathCommand(app *commands.App) *cobra.Command {
	find := searchCommand(app, "find", "Find the best path that meets the constraints", commands.Fields[networkapi.FoundPath])
	find.Long = `Finds the best path that meets the constraints. The answer names the algorithm, and
says whether a better path can exist. Without constraints the path has the fewest hops.`
	explain := searchCommand(app, "explain", "Show the network as a path search sees it, and why links are excluded", commands.Fields[networkapi.ExplainedPath])
	explain.Long = `Searches as "sluice path find" does and lists every link, each direction by
itself, with what the search knew of it, whether it is on the path, and why it could
not have been part of it.`
	cmd := commands.Group("path", "Find paths that meet constraints, and explain them", `  sluice path find 10.0.0.1 10.0.0.2 --bandwidth 10Mbit --delay 5ms
  sluice path find 10.0.0.1 00000000000000a2/1 --delay 5ms --loss 0.1% --objective jitter
  sluice path explain 10.0.0.1 10.0.0.2 --delay 5ms --objective widest`, find, explain)
	cmd.Long = `Finds the best path under any mix of constraints: bandwidth, delay, jitter, loss.
A place is the IP or MAC address of a known host, or a port, written SWITCH/PORT.`
	return cmd
}

// searchCommand returns a command that makes the controller search for a path.
func searchCommand[T any](app *commands.App, word, short string, table func(io.Writer, T)) *cobra.Command {
	var bandwidth, loss float64
	var objective string
	var delay, jitter, limit time.Duration
	var exclude []string
	cmd := &cobra.Command{
		Use: word + " FROM TO", Short: short, Args: command.ExactArgs("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			parameters := commands.Parameters("from", args[0], "to", args[1], "min_bandwidth", number(bandwidth), "max_delay", millis(delay), "max_jitter", millis(jitter),
				"max_loss", number(loss), "objective", objective, "limit", millis(limit), "exclude", strings.Join(exclude, ","))
			return commands.Ask(app, cmd, http.MethodGet, pathPath+word+parameters, nil, table)
		},
	}
	f := cmd.Flags()
	f.Var(command.RateFlag(&bandwidth), "bandwidth", "minimum bandwidth that every link must have available, like 10Mbit")
	f.DurationVar(&delay, "delay", 0, "maximum delay of the whole path, like 5ms")
	f.DurationVar(&jitter, "jitter", 0, "maximum jitter of the whole path")
	f.Var(command.ShareFlag(&loss), "loss", "maximum loss of the whole path, like 0.1%")
	f.Var(command.Word(&objective, "hops", topology.Objectives()...), "objective", "what to optimise among the paths that meet the constraints")
	f.DurationVar(&limit, "limit", topology.DefaultLimit, "time for problems whose exact solution may take exponential time")
	f.StringSliceVar(&exclude, "exclude", nil, "links that the path must not use, by the port from which they leave, SWITCH/PORT")
	return cmd
}

// millis returns a duration in milliseconds, or "" for zero.
func millis(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }

// number returns a number without an exponent, or "" for zero.
func number(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
