package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Output is where a program's commands write.
type Output struct {
	Out io.Writer
	Err io.Writer

	// JSON asks for the answer as JSON instead of a table.
	JSON bool
}

// Standard writes to the process's own outputs.
func Standard() Output { return Output{Out: os.Stdout, Err: os.Stderr} }

// Print writes v as JSON if --json is given, and else calls table with a
// writer that aligns tab-separated columns.
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

// Printf writes one line for people; with --json nothing.
func (o *Output) Printf(format string, args ...any) {
	if !o.JSON {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}
