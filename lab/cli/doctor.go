package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/cli/doctor"
)

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks for labs, and what to do about it",
		Long: `Looks at the user, the kernel, and the programs that labs, demonstrations and
experiments use. The exit code is 1 if something of it cannot work.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.Report(&a.Output, doctor.Host().Run(cmd.Context(), doctor.Lab))
		},
	}
}
