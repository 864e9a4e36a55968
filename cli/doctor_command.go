package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/cli/doctor"
)

func doctorCommand(app *App) *cobra.Command {
	var roles []string
	var folder string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks for what it does, and what to do about it",
		Long: `Looks at the kernel, its settings, programs and the user, and at the addresses, folders
and certificates that the machine's configurations name; as root also whether the
unit's user can read them. The roles of the machine are those whose configuration in
the folder says more than the package's own, or the ones that --role names. The exit
code is 1 if one of them cannot work; what the machine would lack for anything else is
only noted.`,
		Example: `  sudo sluice doctor
  sluice doctor --role controller --dir .`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, r := range roles {
				if !slices.Contains(doctor.Parts(), r) {
					return &command.UsageError{Err: fmt.Errorf("--role %s: use one of %s", r, strings.Join(doctor.Parts(), ", "))}
				}
			}
			return doctor.Report(&app.Output, doctor.Host().Examine(cmd.Context(), folder, roles))
		},
	}
	cmd.AddCommand(doctorNetworkCommand(app))
	cmd.Flags().StringSliceVar(&roles, "role", nil, "what the machine is for: "+strings.Join(doctor.Parts(), ", ")+"; may be repeated")
	cmd.Flags().StringVar(&folder, "dir", "/etc/sluice", "folder with controller.yaml, agent.yaml and mobile.yaml")
	return cmd
}
