package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
)

func versionCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version.Get()
			return app.Print(v, func(w io.Writer) {
				fmt.Fprintf(w, "sluice %s\t%s\t%s\t%s\n", v.Version, v.Platform, v.Go, v.Revision)
			})
		},
	}
}
