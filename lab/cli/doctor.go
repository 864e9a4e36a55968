package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/cli/doctor"
)

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine has what labs need",
		Long: `Checks the user, the kernel, and the programs that labs, demonstrations and
experiments use, and says how to get what is missing. The exit code is 1 if
something cannot work.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.Report(&a.Output, doctor.Host().Run(cmd.Context(), doctor.Lab))
		},
	}
}
