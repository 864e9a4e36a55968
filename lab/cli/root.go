package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
)

// app holds what the commands share.
type app struct {
	command.Output
	// given is the path of sluice that the flag --sluice names.
	given string
}

// newRoot returns the root command.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice-lab",
		Short: "Builds networks on one machine and runs Sluice in them",
		Long: `Builds whole networks on this machine: hosts, Open vSwitch switches, and links with
rate, delay and loss, in network namespaces. It needs root, changes no interface of
the machine, and leaves nothing behind after "down". Demonstrations, experiments and
soaks build networks of their own and run the program sluice in them.`,
		Example: `  sluice-lab generate wan --rate 300Mbit --rtt 150ms --loss 0.05% > wan.yaml
  sluice-lab up wan.yaml
  sluice-lab exec client -- ping -c 3 10.0.0.2
  sluice-lab link wan --loss 0.1%
  sluice-lab link down wan
  sluice-lab down`,
	}
	root.AddCommand(labCommands(a)...)
	root.AddCommand(doctorCommand(a))
	for _, cmd := range []*cobra.Command{demoCommand(a), experimentCommand(a), soakCommand(a)} {
		cmd.PersistentFlags().StringVar(&a.given, "sluice", "", "path of the program sluice (default: the one beside this program)")
		root.AddCommand(cmd)
	}
	command.Finish(root, &a.Output, command.Docs{Reference: Reference})
	return root
}

// Main runs the program and returns its exit code.
func Main() int {
	a := &app{Output: command.Standard()}
	return command.Main(newRoot(a), &a.Output)
}

// Reference returns the generated reference pages by file name.
func Reference() (map[string]string, error) {
	return map[string]string{"cli-lab.md": command.Reference(newRoot(&app{Output: command.Standard()}))}, nil
}

// programs returns the paths of the two programs: sluice, and this one.
func (a *app) programs() (sluice, self string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("find this program: %w", err)
	}
	sluice = a.given
	if sluice == "" {
		sluice = filepath.Join(filepath.Dir(self), "sluice")
	}
	if sluice, err = filepath.Abs(sluice); err != nil {
		return "", "", fmt.Errorf("--sluice: %w", err)
	}
	info, err := os.Stat(sluice)
	if err != nil {
		return "", "", fmt.Errorf("the program sluice, which runs in the lab: %w; \"make build\" makes it beside this one, or name it with --sluice", err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", "", fmt.Errorf("--sluice %s: not a program", sluice)
	}
	return sluice, self, nil
}
