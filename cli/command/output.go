package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Output holds the writers of a program's commands.
type Output struct {
	Out io.Writer
	Err io.Writer

	// JSON reports whether answers are printed as JSON instead of tables.
	JSON bool
}

// Standard returns an Output that writes to the process's own standard output and error.
func Standard() Output { return Output{Out: os.Stdout, Err: os.Stderr} }

// Print writes v as JSON if --json is given. Otherwise it calls table with a writer that aligns
// columns separated by tabs.
func (o *Output) Print(v any, table func(w io.Writer)) error {
	if o.JSON {
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// Printf writes one line for people. With --json it writes nothing.
func (o *Output) Printf(format string, args ...any) {
	if !o.JSON {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}
