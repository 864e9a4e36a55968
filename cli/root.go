package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
)

// Exit codes, documented by "sluice help exit-codes".
const (
	ExitOK          = 0 // done
	ExitFailed      = 1 // something went wrong
	ExitUsage       = 2 // the command line is wrong
	ExitRefused     = 3 // the controller refused the request
	ExitUnreachable = 4 // no controller answered
)

// UsageError is an error of the command line: exit code 2 and a hint at
// --help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitError ends the program with a code of its own, for commands that pass
// on another program's. Err may be nil if all has been said.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}
func (e *ExitError) Unwrap() error { return e.Err }

// New returns the root command.
func New(app *App) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Moves data over OpenFlow networks",
		Long: `Sluice moves data over OpenFlow networks. One program holds the controller, the
agents that carry data, a lab that builds whole networks on one machine, and
the commands with which an operator looks after them.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(app.Out)
	root.SetErr(app.Err)
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	app.connectionFlags(f)
	f.DurationVar(&app.timeout, "timeout", 30*time.Second, "how long to wait for an answer of the API")
	f.BoolVar(&app.JSON, "json", false, "print JSON instead of tables")
	root.AddCommand(commands(app)...)
	for _, x := range app.extras {
		if x.Commands != nil {
			root.AddCommand(x.Commands(app)...)
		}
	}
	refuseUnknown(root)
	return root
}

// groupMark is an annotation of commands that only hold others.
const groupMark = "group"

// isGroup says whether a command only holds others.
func isGroup(c *cobra.Command) bool { return c.Annotations[groupMark] != "" }

// refuseUnknown makes groups of commands refuse what they do not have, instead
// of printing their help as if all were well.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[groupMark] = "yes"
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		err := fmt.Errorf("%s: there is no command %q", cmd.CommandPath(), args[0])
		if cmd.SuggestionsMinimumDistance <= 0 {
			cmd.SuggestionsMinimumDistance = 2
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w; did you mean %q?", err, near[0])
		}
		return &UsageError{err}
	}
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// Main runs the program, with what is given besides, and returns its exit code. The first
// SIGINT or SIGTERM ends the command's context, the second one the process.
func Main(extras ...Extra) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	app := NewApp()
	app.extras = extras
	return run(ctx, app, os.Args[1:])
}

func run(ctx context.Context, app *App, args []string) int {
	root := New(app)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Err != nil {
		fmt.Fprintln(app.Err, "sluice:", err)
	}
	return exitCode(app, err)
}

func exitCode(app *App, err error) int {
	var (
		exit    *ExitError
		usage   *UsageError
		problem *client.Problem
	)
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage):
		fmt.Fprintln(app.Err, "Add --help to the command to see how it is used.")
		return ExitUsage
	case errors.As(err, &problem):
		return ExitRefused
	case errors.Is(err, client.ErrUnreachable):
		return ExitUnreachable
	}
	return ExitFailed
}
