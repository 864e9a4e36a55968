package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/cli/doctor"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/linkprobe"
)

func doctorCommand(app *commands.App) *cobra.Command {
	var roles []string
	var folder string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what this machine lacks for its roles, with remedies",
		Long: `Checks the kernel, its settings, programs and the user, and the addresses, folders and
certificates that the machine's configurations name. As root it also checks whether
the units' user can read them. The machine has the roles that --role names, or those
whose configuration in the folder differs from the package's own. The exit code is 1
if a role cannot work. What the machine lacks for other roles is only noted.`,
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

// askAgain is the time between two requests for the state of the network's examination.
const askAgain = 300 * time.Millisecond

func doctorNetworkCommand(app *commands.App) *cobra.Command {
	var mtu int
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Report faults of a controller's network, with their places and remedies",
		Long: `Makes the controller examine every link between its switches in both directions, with
frames of many kinds and sizes, at most 100 for each link. Each fault is reported with
its place and a remedy. The exit code is 1 if packets are lost or changed somewhere.`,
		Example: `  sluice doctor network
  sluice doctor network --mtu 9000 --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mtu < linkprobe.MinMTU || mtu > linkprobe.MaxMTU {
				return &command.UsageError{Err: fmt.Errorf("--mtu %d: want %d to %d bytes of an IP packet", mtu, linkprobe.MinMTU, linkprobe.MaxMTU)}
			}
			c, err := app.Client()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			d, err := examine(ctx, c, mtu)
			if err != nil {
				return err
			}
			if err := app.Print(d, commands.Named(cmd.Context(), c, func(w io.Writer) { printDiagnosis(w, d) })); err != nil {
				return err
			}
			if slices.ContainsFunc(d.Findings, func(f networkapi.Finding) bool { return f.Level == string(diagnosis.Fail) }) {
				return &command.ExitError{Code: command.ExitFailed}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&mtu, "mtu", linkprobe.DefaultMTU, "the largest IP packet that links should carry, in bytes")
	cmd.Flags().DurationVar(&within, "within", 6*time.Minute, "how long to wait for the end")
	return cmd
}

// examine makes the controller examine the network, and waits for the result.
func examine(ctx context.Context, c *client.Client, mtu int) (d networkapi.Diagnosis, err error) {
	if err := c.Do(ctx, http.MethodPost, networkPath+"diagnosis", map[string]int{"mtu": mtu}, &d); err != nil {
		return d, err
	}
	for number := d.Number; d.Running; {
		if err := tasks.Sleep(ctx, askAgain); err != nil {
			return d, fmt.Errorf("waiting for the end of the examination: %w", err)
		}
		if err := c.Get(ctx, networkPath+"diagnosis", &d); err != nil {
			return d, err
		}
		if d.Number != number {
			return d, fmt.Errorf("the controller has begun examination %d in the place of %d: it was restarted, or somebody else began one; try again", d.Number, number)
		}
	}
	return d, nil
}

func printDiagnosis(w io.Writer, d networkapi.Diagnosis) {
	if len(d.Findings) == 0 {
		fmt.Fprintf(w, "Nothing is wrong: %d links examined, %d frames.\n", d.Links, d.Frames)
		return
	}
	fmt.Fprintln(w, "LEVEL\tFAULT\tWHERE\tFOUND")
	for _, f := range d.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n\t\t\t-> %s\n", f.Level, f.Fault, whereOf(f), f.Found, f.Remedy)
	}
}

// whereOf returns the place of a finding: a switch, a port, or one direction of a link.
func whereOf(f networkapi.Finding) string {
	switch {
	case f.From == nil:
		return "-"
	case f.To != nil:
		return portName(*f.From) + " > " + portName(*f.To)
	case f.From.Port == 0:
		return f.From.Switch
	}
	return portName(*f.From)
}
