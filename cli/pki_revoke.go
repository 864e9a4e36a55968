package cli

import (
	"fmt"
	"math/big"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/pki"
)

func pkiRevokeCommand(app *App, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME|SERIAL",
		Short: "Revoke all certificates of a name, or one by its serial number",
		Long: `Adds certificates to ca.crl beside ca.crt. Controllers, agents, devices and commands
that find ca.crl beside the ca.crt which they are given refuse them at the next
connection, and the API at the next request; copy the file to the machines that have a
copy of ca.crt. It is read again when it changes. Other connections under way go on:
what a switch or an agent has open ends when its program or the controller is restarted.

A serial number is written in hex, as "sluice pki show --json" has it.`,
		Example: `  sluice pki revoke agent1
  sluice pki revoke 6f0c1d25a4e9b37781`,
		Args: command.ExactArgs("NAME|SERIAL"),
		RunE: func(_ *cobra.Command, args []string) error {
			ca, err := pki.Load(*dir)
			if err != nil {
				return err
			}
			serials, err := ca.Issued(*dir, args[0])
			if err != nil {
				return err
			}
			if serial, ok := new(big.Int).SetString(strings.ReplaceAll(args[0], ":", ""), 16); len(serials) == 0 && ok && serial.Sign() > 0 && len(args[0]) >= 16 {
				serials = []*big.Int{serial}
			}
			if len(serials) == 0 {
				return fmt.Errorf("no certificate of the name %q that has not ended is known in %s: give its serial number", args[0], *dir)
			}
			all, err := ca.Revoke(*dir, serials...)
			if err != nil {
				return err
			}
			app.Printf("%s: %d revoked now, %d in all; copy it to where %s is", pki.CRLFile(filepath.Join(*dir, pki.CACertFile)), len(serials), all, pki.CACertFile)
			return nil
		},
	}
}
