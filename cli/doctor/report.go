package doctor

import (
	"fmt"
	"io"

	"github.com/sluice-net/sluice/cli/command"
)

// Report prints findings. The error says that something does not work.
func Report(o *command.Output, all []Finding) error {
	err := o.Print(all, func(w io.Writer) {
		last := ""
		for _, f := range all {
			if f.For != last {
				title := f.For
				if f.Note {
					title += " (not a role of this machine)"
				}
				fmt.Fprintf(w, "%s\n", title)
				last = f.For
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Level, f.Check, f.Found)
			if f.Advice != "" {
				fmt.Fprintf(w, "\t\t-> %s\n", f.Advice)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.Level == Fail {
			return &command.ExitError{Code: command.ExitFailed}
		}
	}
	return nil
}
