// Package commandstest runs command lines in tests.
package commandstest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
)

// ClearEnvironment removes the environment variables that select a controller, and hides the
// contexts file of the user who runs the tests. Call it from TestMain.
func ClearEnvironment() {
	for _, name := range []string{"SLUICE_SERVER", "SLUICE_TOKEN", "SLUICE_TOKEN_FILE", "SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY", "SLUICE_CONFIG", "SLUICE_CONTEXT"} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	if err := os.Setenv(commands.ContextsVariable, filepath.Join(os.TempDir(), "no-contexts", "contexts.yaml")); err != nil {
		panic(err)
	}
}

// Run runs a command line of a program that has the commands of. It returns the program's exit code
// and its output.
func Run(ctx context.Context, of func(*commands.App) []*cobra.Command, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	app := &commands.App{Output: command.Output{Out: &stdout, Err: &stderr}}
	root := &cobra.Command{Use: "sluice"}
	app.Flags(root.PersistentFlags())
	root.AddCommand(of(app)...)
	command.Finish(root, &app.Output, command.Docs{})
	code = command.Run(ctx, root, &app.Output, args)
	return code, stdout.String(), stderr.String()
}
