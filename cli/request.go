package cli

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
)

// get reads a path and prints the answer.
func (a *App) get(cmd *cobra.Command, path string, out any, table func(io.Writer)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Get(cmd.Context(), path, out); err != nil {
		return err
	}
	return a.Print(out, named(cmd.Context(), c, table))
}

// sendAndPrint makes one request of a changing command, and prints the answer.
func (a *App) sendAndPrint(cmd *cobra.Command, method, path string, in, out any, table func(io.Writer)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Do(cmd.Context(), method, path, in, out); err != nil {
		return err
	}
	return a.Print(out, named(cmd.Context(), c, table))
}

// Send makes one request of a changing command.
func (a *App) Send(cmd *cobra.Command, method, path string, in, out any) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(cmd.Context(), method, path, in, out)
}

// GetCommand is a command without arguments that reads a path and prints the answer.
func GetCommand[T any](app *App, use, short, path string, table func(io.Writer, T)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer T
			return app.get(cmd, path, &answer, func(w io.Writer) { table(w, answer) })
		},
	}
}

// RemoveCommand is a command that removes from a collection what its argument names.
func RemoveCommand(app *App, use, short, collection string) *cobra.Command {
	_, argument, _ := strings.Cut(use, " ")
	return &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs(argument),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.Send(cmd, http.MethodDelete, collection+"/"+url.PathEscape(args[0]), nil, nil)
		},
	}
}
