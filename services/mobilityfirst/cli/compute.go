package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/mobilityfirst/compute"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// minBuiltinMemory is the minimum memory of a built-in function.
const minBuiltinMemory = 256 << 20

func mfComputeCommand(app *commands.App) *cobra.Command {
	var a attachment
	var metrics commands.MetricsServer
	var ctl controlServer
	var o compute.Options
	builtin, memory, program := "", config.Size(minBuiltinMemory), compute.Program{Within: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "compute [flags] [-- PROGRAM [ARGUMENT...]]",
		Short: "Run a function on chunks on their way",
		Long: `Runs a compute node until it gets SIGINT or SIGTERM. A function is a name: that of
--name-key. Everyone with the key may run it, on any number of hosts; the network leads
to one of them, and to another if that fails. What "sluice mf send --through" sends to the
function is passed to the program on standard input, a chunk at a time; its standard
output is sent to the destination, as from the sender. If the program fails on a chunk,
with an exit status other than zero, the sender receives what the program has written to
standard error. The same holds for a chunk that takes too long or too much memory.

The program runs once for each chunk, as the user of this process, with SLUICE_FROM and
SLUICE_TO in its environment. Its input may come from anybody, and may be malicious.
Built-in functions: ` + builtinNames() + `.`,
		Example: `  sluice mf name new shrink.key
  sluice mf compute --name-key shrink.key --builtin compress
  sluice mf compute --name-key upper.key -- tr a-z A-Z
  sluice mf compute --name-key text.key --within 2s --memory 64MiB -- iconv -t utf-8`,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, args []string, log *slog.Logger) error {
			switch {
			case a.key == "":
				return &command.UsageError{Err: errors.New("--name-key is missing: senders have to know the function's name; \"sluice mf name new\" creates one")}
			case builtin == "" && len(args) == 0:
				return &command.UsageError{Err: errors.New("want --builtin, or a program after --")}
			case builtin != "" && len(args) > 0:
				return &command.UsageError{Err: errors.New("want --builtin or a program after --, not both")}
			case len(args) > 0 && cmd.ArgsLenAtDash() != 0:
				return &command.UsageError{Err: fmt.Errorf("%q: the program has to follow --", args[0])}
			case program.Within < 10*time.Millisecond || program.Within > time.Minute:
				return &command.UsageError{Err: fmt.Errorf("--within %v: want 10ms to 1m", program.Within)}
			case memory < 1<<20 || builtin != "" && memory < minBuiltinMemory:
				return &command.UsageError{Err: fmt.Errorf("--memory %v: want at least 1MiB, and %v for --builtin", memory, config.Size(minBuiltinMemory))}
			case o.Workers < 0:
				return &command.UsageError{Err: fmt.Errorf("--workers %d: want at least 1, or 0 for one for each processor", o.Workers)}
			}
			var err error
			program.Memory = uint64(memory)
			if builtin != "" {
				program.Args, err = builtinArgs(builtin)
			} else {
				program.Args, err = programArgs(args)
			}
			if err != nil {
				return err
			}
			if err := checkLimits(cmd.Context(), program); err != nil {
				return err
			}
			o.Function, o.Log = program.Call, log
			called := nodeapi.ComputeReport{Function: builtin, Builtin: builtin != ""}
			if builtin == "" {
				called.Function = nodeapi.Text(filepath.Base(args[0]), nodeapi.MaxFunction) // without its arguments, which may be secret
			}
			return runCompute(cmd.Context(), &a, o, called, &metrics, &ctl)
		}),
	}
	cmd.AddCommand(mfCallCommand(app))
	a.flags(cmd)
	flags := cmd.Flags()
	metrics.Flag(flags)
	ctl.flags(flags)
	flags.StringVar(&builtin, "builtin", "", "built-in function to run: "+builtinNames())
	flags.DurationVar(&program.Within, "within", program.Within, "how long a call may take")
	flags.TextVar(&memory, "memory", memory, "memory limit of each process of a call")
	flags.IntVar(&o.Workers, "workers", 0, "maximum number of concurrent calls; 0 for the number of processors")
	return cmd
}

// checkLimits checks that the limits of programs can be set, so that this does not fail with the
// first chunk.
func checkLimits(ctx context.Context, p compute.Program) error {
	p.Args = []string{"true"}
	if _, err := p.Call(ctx, &compute.Order{}, nil); err != nil {
		return fmt.Errorf("the limits of --within and --memory cannot be set here: %w", err)
	}
	return nil
}

// runCompute runs a compute node, and logs at its end what it has done.
func runCompute(ctx context.Context, a *attachment, o compute.Options, called nodeapi.ComputeReport, metrics *commands.MetricsServer, ctl *controlServer) (err error) {
	if err := errors.Join(metrics.Open(), ctl.open()); err != nil {
		return err
	}
	if o.Host, err = a.open(ctx); err != nil {
		return err
	}
	n := compute.NewNode(o)
	m := newMetrics("mf_compute", []total{
		{"calls_total", "Calls, by outcome: called, failed, refused, and false for what was no call.", func() map[string]uint64 {
			c := n.Counters()
			return map[string]uint64{"called": c.Called, "failed": c.Failed, "refused": c.Refused, "false": c.False}
		}},
	}, []gauge{{"chunks", "Chunks that it has now.", func() float64 { return float64(n.Counters().Chunks) }}})
	defer metrics.Serve(m, o.Log)()
	stop, err := ctl.serve(nodeapi.Options{Log: o.Log, Key: a.owner, Report: func() nodeapi.Report { return computeReport(n, called) }, Metrics: m})
	if err != nil {
		return errors.Join(err, o.Host.Close())
	}
	defer stop()
	o.Log.Info("compute node runs", "function", o.Host.Name)
	err = n.Run(ctx)
	c := n.Counters()
	o.Log.Info("compute node ends", "called", c.Called, "failed", c.Failed, "refused", c.Refused, "false", c.False, "chunks", c.Chunks)
	return err
}

// computeReport returns the report of a compute node; called describes its function.
func computeReport(n *compute.Node, called nodeapi.ComputeReport) nodeapi.Report {
	c := n.Counters()
	called.Called, called.Failed, called.Refused = c.Called, c.Failed, c.Refused
	called.Running, called.Workers, called.Queued = c.Running, n.Workers, c.Chunks-c.Running
	called.Load = c.Load
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &u) == nil { // this process has no other children than calls
		called.CPUTime = control.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return nodeapi.Report{Compute: &called}
}

func mfCallCommand(app *commands.App) *cobra.Command {
	return &cobra.Command{
		Use:     "call FUNCTION",
		Short:   "Call a built-in function on standard input",
		Long:    "Calls the function on standard input, and writes the result to standard output:\n\n" + builtinList(),
		Example: `  sluice mf compute call checksum < film.mp4`,
		Args:    command.ExactArgs("FUNCTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := findBuiltin(args[0])
			if err != nil {
				return err
			}
			return b.Run(app.Out, cmd.InOrStdin())
		},
	}
}

// builtinArgs returns the command line with which this program calls a built-in function.
func builtinArgs(name string) ([]string, error) {
	if _, err := findBuiltin(name); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return []string{self, "mf", "compute", "call", name}, nil
}

// programArgs returns the command line of a program with an absolute path, because it is called in
// another directory.
func programArgs(args []string) ([]string, error) {
	path, err := exec.LookPath(args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the function's program: %w", err)
	}
	return append([]string{path}, args[1:]...), nil
}

func findBuiltin(name string) (compute.Builtin, error) {
	i := slices.IndexFunc(compute.Builtins, func(b compute.Builtin) bool { return b.Name == name })
	if i < 0 {
		return compute.Builtin{}, &command.UsageError{Err: fmt.Errorf("function %q: want one of %s", name, builtinNames())}
	}
	return compute.Builtins[i], nil
}

func builtinNames() string {
	var names []string
	for _, b := range compute.Builtins {
		names = append(names, b.Name)
	}
	return strings.Join(names, ", ")
}

func builtinList() string {
	var list strings.Builder
	for _, b := range compute.Builtins {
		fmt.Fprintf(&list, "  %-12s%s\n", b.Name, b.Does)
	}
	return list.String()
}
