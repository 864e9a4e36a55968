package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/doctor"
	"github.com/sluice-net/sluice/config"
)

func doctorCommand(app *App) *cobra.Command {
	var controllerFile, agentFile string
	cmd := &cobra.Command{
		Use:   "doctor [controller|agent|lab]...",
		Short: "Say what this machine lacks, and what to do about it",
		Long: `Looks at the kernel, its settings, programs, the user, and with the
configurations also at addresses, folders and certificates. Without arguments it
checks for everything. The exit code is 1 if something does not work.`,
		Example: `  sluice doctor
  sluice doctor lab
  sluice doctor controller --controller-config /etc/sluice/controller.yaml`,
		ValidArgs: doctor.Parts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				if err := oneOfArgs(doctor.Parts()...)(cmd, []string{a}); err != nil {
					return err
				}
			}
			if len(args) == 0 {
				args = doctor.Parts()
			}
			host := doctor.Host()
			all := []doctor.Finding{}
			for _, part := range args {
				all = append(all, host.Run(cmd.Context(), part)...)
				switch {
				case part == doctor.Controller && controllerFile != "":
					c, err := config.LoadController(config.Sources{File: controllerFile, Env: os.Environ()})
					if err != nil {
						return err
					}
					all = append(all, doctor.ForController(cmd.Context(), c)...)
				case part == doctor.Agent && agentFile != "":
					c, err := config.LoadAgent(config.Sources{File: agentFile, Env: os.Environ()})
					if err != nil {
						return err
					}
					all = append(all, doctor.ForAgent(cmd.Context(), c)...)
				}
			}
			return app.report(all)
		},
	}
	cmd.Flags().StringVar(&controllerFile, "controller-config", "", "also check what this configuration needs")
	cmd.Flags().StringVar(&agentFile, "agent-config", "", "also check what this configuration needs")
	return cmd
}

func (a *App) report(all []doctor.Finding) error {
	err := a.Print(all, func(w io.Writer) {
		last := ""
		for _, f := range all {
			if f.For != last {
				fmt.Fprintf(w, "%s\t\t\n", f.For)
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
		if f.Level == doctor.Fail {
			return &ExitError{Code: ExitFailed}
		}
	}
	return nil
}
