package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
)

func versionCommand(o *Output) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Get()
			return o.Print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", cmd.Root().Name(), v.Version, v.Platform, v.Go, v.Revision)
			})
		},
	}
}
