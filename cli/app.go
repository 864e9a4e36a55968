package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/controller"
)

// App is what commands share: where they write, and the flags that all of
// them have.
type App struct {
	Out io.Writer
	Err io.Writer

	// JSON asks for the answer as JSON instead of a table.
	JSON bool

	connection
	timeout time.Duration
	extras  []Extra
}

// Extra is what a program of your own has beside everything of Sluice.
type Extra struct {
	// Service is one more service of the controller; nil for none.
	Service controller.Constructor
	// Commands makes its commands; nil for none.
	Commands func(*App) []*cobra.Command
}

// Client returns a client of the controller that the flags, the environment or the
// context name. Errors say which flag to set.
func (a *App) Client() (*client.Client, error) {
	if err := a.useContext(); err != nil {
		return nil, err
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := a.tls()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Server: a.server, Token: token, TLS: tlsConfig, Timeout: a.timeout})
}

// Print writes v as JSON if --json is given, and else calls table with a
// writer that aligns tab-separated columns.
func (a *App) Print(v any, table func(w io.Writer)) error {
	if a.JSON {
		enc := json.NewEncoder(a.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// Printf writes one line for people; with --json nothing.
func (a *App) Printf(format string, args ...any) {
	if !a.JSON {
		fmt.Fprintf(a.Out, format+"\n", args...)
	}
}

// NewApp returns an App that writes to the process's own outputs.
func NewApp() *App { return &App{Out: os.Stdout, Err: os.Stderr} }
