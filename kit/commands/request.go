package commands

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
)

// Call sends one request, and prints the answer with table unless that is nil.
func (a *App) Call(cmd *cobra.Command, method, path string, in, out any, table func(io.Writer)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Do(cmd.Context(), method, path, in, out); err != nil || table == nil {
		return err
	}
	return a.Print(out, Named(cmd.Context(), c, table))
}

// dpidPattern matches a datapath identifier in an answer.
var dpidPattern = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// Named returns a function that prints a table with the configured names of switches instead of
// their datapath identifiers. Commands accept both. A switch without a name keeps its identifier.
func Named(ctx context.Context, c *client.Client, table func(io.Writer)) func(io.Writer) {
	return func(w io.Writer) {
		var text bytes.Buffer
		table(&text)
		if !dpidPattern.Match(text.Bytes()) {
			fmt.Fprint(w, text.String())
			return
		}
		names := map[string]string{}
		var switches []struct {
			DPID string `json:"dpid"`
			Name string `json:"name"`
		}
		_ = c.Get(ctx, api.Prefix+"/network/switches", &switches) // after an error there are no names
		for _, s := range switches {
			names[s.DPID] = s.Name
		}
		fmt.Fprint(w, dpidPattern.ReplaceAllStringFunc(text.String(), func(dpid string) string {
			if names[dpid] == "" {
				return dpid
			}
			return names[dpid]
		}))
	}
}

// Ask sends one request, and prints the answer with table. If table is nil, there is no answer to
// print.
func Ask[T any](app *App, cmd *cobra.Command, method, path string, in any, table func(io.Writer, T)) error {
	if table == nil {
		return app.Call(cmd, method, path, in, nil, nil)
	}
	var answer T
	return app.Call(cmd, method, path, in, &answer, func(w io.Writer) { table(w, answer) })
}

// Get returns a command that reads a path and prints the answer. The argument that use names
// replaces %s in the path, or else is appended to it. Flags that are defined on the command become
// parameters of the request, by their names.
func Get[T any](app *App, use, short, path string, table func(io.Writer, T)) *cobra.Command {
	if strings.Contains(use, " ") && !strings.Contains(path, "%s") {
		path += "/%s"
	}
	return &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs(strings.Fields(use)[1:]...),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Ask(app, cmd, http.MethodGet, FillPath(path, args)+Query(cmd), nil, table)
		},
	}
}

// FillPath returns a path in which the argument replaces %s.
func FillPath(path string, args []string) string {
	if !strings.Contains(path, "%s") {
		return path
	}
	return strings.Replace(path, "%s", url.PathEscape(args[0]), 1)
}

// Query returns the values of a command's own flags, and further pairs of name and value, as the
// parameters of a request.
func Query(cmd *cobra.Command, more ...string) string {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			more = append(more, strings.ReplaceAll(f.Name, "-", "_"), f.Value.String())
		}
	})
	return Parameters(more...)
}

// Parameters returns the pairs of name and value whose value is not empty as the parameters of a
// request.
func Parameters(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// Remove returns a command that removes the item that its argument names from a collection.
func Remove(app *App, use, short, collection string) *cobra.Command {
	_, argument, _ := strings.Cut(use, " ")
	return &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs(argument),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.Call(cmd, http.MethodDelete, FillPath(collection+"/%s", args)+Query(cmd), nil, nil, nil)
		},
	}
}

// Group returns a command that only groups others.
func Group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example}
	cmd.AddCommand(commands...)
	return cmd
}
