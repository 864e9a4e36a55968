package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/network/topology"
)

const pathPath = api.Prefix + "/path/"

func pathCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Find paths that meet constraints, and explain them",
		Long: `Finds the best path under any mix of constraints: bandwidth, delay, jitter, loss.
A place is the IP or MAC address of a known host, or a port, written SWITCH/PORT.`,
		Example: `  sluice path find 10.0.0.1 10.0.0.2 --bandwidth 10M --delay 5ms
  sluice path explain 10.0.0.1 10.0.0.2 --delay 5ms --objective widest`,
	}
	cmd.AddCommand(pathFindCommand(app), pathExplainCommand(app))
	return cmd
}

// pathFlags are the constraints as the user gives them.
type pathFlags struct {
	bandwidth, loss, objective string
	delay, jitter, limit       time.Duration
	exclude                    []string
}

func (f *pathFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.bandwidth, "bandwidth", "", "what every link must have available, in bit/s: 10M, 1.5G")
	flags.DurationVar(&f.delay, "delay", 0, "delay of the whole path at most, as in 5ms")
	flags.DurationVar(&f.jitter, "jitter", 0, "jitter of the whole path at most")
	flags.StringVar(&f.loss, "loss", "", "loss of the whole path at most: 0.1% or 0.001")
	flags.Var(command.Word(&f.objective, "hops", topology.Objectives()...), "objective", "what is to be best among the paths that meet the constraints")
	flags.DurationVar(&f.limit, "limit", topology.DefaultLimit, "time for problems whose exact solution may take exponential time")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "links not to use, by the port they leave from, SWITCH/PORT: what if they failed?")
}

// query checks the flags and writes them as the API wants them.
func (f *pathFlags) query(from, to string) (string, error) {
	bandwidth, err := parseBits(f.bandwidth)
	if err != nil {
		return "", &command.UsageError{Err: fmt.Errorf("--bandwidth: %w", err)}
	}
	loss, err := parseShare(f.loss)
	if err != nil {
		return "", &command.UsageError{Err: fmt.Errorf("--loss: %w", err)}
	}
	return query("from", from, "to", to, "min_bandwidth", bandwidth, "max_delay", millis(f.delay), "max_jitter", millis(f.jitter),
		"max_loss", loss, "objective", f.objective, "limit", millis(f.limit), "exclude", strings.Join(f.exclude, ",")), nil
}

func millis(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64)
}

// parseBits reads a rate such as 10M in bits per second.
func parseBits(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	number, factor := text, 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, factor = n, f
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0 && v*factor <= 1e15) {
		return "", fmt.Errorf("%q: write bits per second, as in 800k, 10M or 1.5G", text)
	}
	return strconv.FormatFloat(math.Round(v*factor), 'f', -1, 64), nil
}

// parseShare reads a share such as 0.1% or 0.001.
func parseShare(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v < 1) {
		return "", fmt.Errorf("%q: write a share below 1 or a percentage, as in 0.001 or 0.1%%", text)
	}
	return strconv.FormatFloat(v, 'f', -1, 64), nil
}

func pathFindCommand(app *App) *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:   "find FROM TO",
		Short: "Find the best path that meets the constraints",
		Long: `Finds the best path that meets the constraints, and says by which algorithm, and
whether a better one can exist. Without constraints it is the path of fewest hops.`,
		Example: `  sluice path find 10.0.0.1 10.0.0.2 --bandwidth 10M
  sluice path find 10.0.0.1 00000000000000a2/1 --delay 5ms --loss 0.1% --objective jitter`,
		Args: command.ExactArgs("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.query(args[0], args[1])
			if err != nil {
				return err
			}
			var p networkapi.FoundPath
			return app.get(cmd, pathPath+"find"+q, &p, func(w io.Writer) { printFound(w, p) })
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func pathExplainCommand(app *App) *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Show the network as a path search sees it, and why links are out",
		Long: `Searches as "sluice path find" does and lists every link, each direction by
itself, with what the search knew of it. A star marks the links of the path; the
last column says why a link could not have been part of it.`,
		Example: `  sluice path explain 10.0.0.1 10.0.0.2 --bandwidth 10M --delay 5ms`,
		Args:    command.ExactArgs("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.query(args[0], args[1])
			if err != nil {
				return err
			}
			var p networkapi.ExplainedPath
			return app.get(cmd, pathPath+"explain"+q, &p, func(w io.Writer) {
				printFound(w, p.FoundPath)
				fmt.Fprintln(w)
				printSeen(w, p.Links)
			})
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func printFound(w io.Writer, p networkapi.FoundPath) {
	if !p.Found {
		fmt.Fprintf(w, "There is no path to give: %s.\n", p.Reason)
		return
	}
	fmt.Fprintln(w, "SWITCH\tIN\tOUT")
	for _, h := range p.Hops {
		fmt.Fprintf(w, "%s\t%d\t%d\n", h.Switch, h.In, h.Out)
	}
	fmt.Fprintf(w, "\navailable\t%s\ndelay\t%.3f ms\njitter\t%.3f ms\nloss\t%.4g %%\n", bitsOr(p.Bandwidth, "-"), p.Delay, p.Jitter, 100*p.Loss)
	if p.Unmeasured > 0 {
		fmt.Fprintf(w, "not measured\t%d of its links\n", p.Unmeasured)
	}
	quality := "no path is better"
	if !p.Exact {
		quality = fmt.Sprintf("a better path may exist, by %.1f %% at most", 100*p.Gap)
	}
	fmt.Fprintf(w, "found by\t%s in %.2f ms: %s\n", p.Algorithm, p.Elapsed, quality)
}

func printSeen(w io.Writer, links []networkapi.SeenLink) {
	fmt.Fprintln(w, "\tFROM\tTO\tAVAILABLE\tDELAY\tJITTER\tLOSS\tOUT BECAUSE")
	for _, l := range links {
		mark := " "
		if l.OnPath {
			mark = "*"
		}
		fmt.Fprintf(w, "%s\t%s/%d\t%s/%d\t%s\t%s\t%s\t%.4g %%\t%s\n", mark, l.From.Switch, l.From.Port, l.To.Switch, l.To.Port,
			bitsOr(l.Available, "0"), millisOr(l.Delay), millisOr(l.Jitter), 100*l.Loss, l.Out)
	}
}

func bitsOr(bits uint64, none string) string {
	if bits == 0 {
		return none
	}
	return bitRate(float64(bits))
}

func millisOr(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f ms", ms)
}
