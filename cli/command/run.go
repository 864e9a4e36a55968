package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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

const exitCodes = `0  done
1  something went wrong
2  the command line is wrong
3  the controller refused the request
4  no controller answered`

// exitCodesTopic returns the help topic about exit codes.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the program's exit codes mean",
		Long:  "The program ends with one of these codes:\n\n" + exitCodes + "\n\nCommands that run another program, like \"sluice-lab exec\", end with its code.",
	}
}

// UsageError is an error in the command line. The exit code is 2, and the message has a hint at
// --help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitError ends the program with a given exit code, for example that of another program. Err is
// nil if everything has been printed.
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

// Finish completes a root command, to which the program's own commands have been added, with the parts
// that all programs have: --json, the build's version, documentation, and plain error messages. docs
// describes the documentation.
func Finish(root *cobra.Command, o *Output, docs Docs) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolVar(&o.JSON, "json", false, "print JSON instead of tables")
	root.AddCommand(versionCommand(o), docsCommand(o, docs), exitCodesTopic())
	finishGroups(root)
}

// groupMark is an annotation of commands that only group others.
const groupMark = "group"

// isGroup reports whether a command only groups others.
func isGroup(c *cobra.Command) bool { return c.Annotations[groupMark] != "" }

// listOf returns the list command of a group, like "sos agents list", or nil if the group has none.
func listOf(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == "list" && c.HasParent() && c.Parent().HasParent() {
			return sub
		}
	}
	return nil
}

// finishGroups makes each group of commands run its list command, or else print its help, if no
// subcommand is given. It also makes groups refuse unknown subcommands.
func finishGroups(c *cobra.Command) {
	for _, sub := range c.Commands() {
		finishGroups(sub)
	}
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[groupMark] = "yes"
	c.Args = cobra.ArbitraryArgs
	list := listOf(c)
	if list != nil {
		c.Flags().AddFlagSet(list.Flags())
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && list != nil:
			return list.RunE(cmd, nil)
		case len(args) == 0:
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

// Main runs a program and returns its exit code. The first SIGINT or SIGTERM ends the
// command's context, the second one the process.
func Main(root *cobra.Command, o *Output) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	return Run(ctx, root, o, os.Args[1:])
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, root *cobra.Command, o *Output, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Err != nil {
		fmt.Fprintf(o.Err, "%s: %v\n", root.Name(), err)
	}
	return exitCode(o, err)
}

func exitCode(o *Output, err error) int {
	var (
		exit    *ExitError
		usage   *UsageError
		problem *client.Problem
	)
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage):
		fmt.Fprintln(o.Err, "Add --help to the command to see how it is used.")
		return ExitUsage
	case errors.As(err, &problem):
		return ExitRefused
	case errors.Is(err, client.ErrUnreachable):
		return ExitUnreachable
	}
	return ExitFailed
}
