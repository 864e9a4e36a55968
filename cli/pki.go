package cli

import (
	"fmt"
	"io"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
)

const day = 24 * time.Hour

func pkiCommand(app *commands.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "Make the certificates of controller, agents, switches, operators, neighbours and nodes",
		Long: `Runs a small certificate authority in a folder. Each certificate names the role of its
holder, so that an agent's certificate does not give the rights of a controller.
Controllers and agents read renewed certificates without a restart.`,
		Example: `  sluice pki init --dir /etc/sluice/pki
  sluice pki issue controller ctl --host 192.0.2.1
  sluice pki issue agent agent1 --host 192.0.2.11
  sluice pki issue switch edge1
  sluice pki show`,
	}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "dir", "/etc/sluice/pki", "folder of the authority")
	cmd.AddCommand(pkiInitCommand(app, &dir), pkiIssueCommand(app, &dir), pkiRevokeCommand(app, &dir), pkiShowCommand(app, &dir))
	return cmd
}

func pkiInitCommand(app *commands.App, dir *string) *cobra.Command {
	var name string
	var days int
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a certificate authority",
		Long: `Makes ca.crt and ca.key in the folder. Whoever has ca.key can make certificates that
all these programs trust: keep it where only you can read it.`,
		Args: command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if days < 1 {
				return &command.UsageError{Err: fmt.Errorf("--days %d: use at least 1", days)}
			}
			ca, err := pki.Init(*dir, name, time.Duration(days)*day)
			if err != nil {
				return err
			}
			app.Printf("%s: authority %q, until %s", filepath.Join(*dir, pki.CACertFile), name, ca.Cert.NotAfter.Format(time.DateOnly))
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "sluice-ca", "name of the authority")
	cmd.Flags().IntVar(&days, "days", 3650, "how long it is valid")
	return cmd
}

func pkiIssueCommand(app *commands.App, dir *string) *cobra.Command {
	var hosts []string
	var days int
	var out string
	roles := make([]string, len(pki.Roles()))
	for i, r := range pki.Roles() {
		roles[i] = string(r)
	}
	cmd := &cobra.Command{
		Use:   "issue " + strings.Join(roles, "|") + " NAME",
		Short: "Issue a certificate, or renew one of the same name",
		Long: `Issues a certificate with a new key. A certificate of the same name in the folder is
renewed: the new one keeps the names and addresses of the old one unless --host gives
others, and a warning lists those that it loses. The old one stays valid until it ends.`,
		Example: `  sluice pki issue agent agent1 --host 192.0.2.11 --host agent1.example.net
  sluice pki issue operator alice --days 30 --out ~/alice
  sluice pki issue neighbour north --out ~/for-north
  sluice pki issue node depot-1 --host 192.0.2.7`,
		ValidArgs: roles,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := command.ExactArgs("ROLE", "NAME")(cmd, args); err != nil {
				return err
			}
			return command.OneOf(roles...)(cmd, args[:1])
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if days < 1 {
				return &command.UsageError{Err: fmt.Errorf("--days %d: use at least 1", days)}
			}
			ca, err := pki.Load(*dir)
			if err != nil {
				return err
			}
			if out == "" {
				out = *dir
			}
			request, renewal, err := ca.Renew(out, pki.Request{Role: pki.Role(args[0]), Name: args[1], Hosts: hosts, Valid: time.Duration(days) * day})
			if err != nil {
				return err
			}
			pair, err := ca.Issue(request)
			if err != nil {
				return err
			}
			if err := pki.Record(*dir, pair); err != nil {
				return err
			}
			if err := pair.Write(out, args[1]); err != nil {
				return err
			}
			app.Printf("%s.crt, %s.key: %s %s, trusted by those who have %s", filepath.Join(out, args[1]), args[1], args[0], args[1], filepath.Join(*dir, pki.CACertFile))
			printRenewal(app, args[1], request.Role, renewal)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "DNS name or IP address under which it is reached; may be repeated")
	cmd.Flags().IntVar(&days, "days", 365, "how long it is valid")
	cmd.Flags().StringVar(&out, "out", "", "folder for the certificate and its key (default: that of --dir)")
	return cmd
}

// printRenewal prints which names and addresses a renewed certificate has kept. It warns of names and
// addresses that the certificate has lost, and of a change of its role.
func printRenewal(a *commands.App, name string, role pki.Role, r pki.Renewal) {
	if len(r.Kept) > 0 {
		a.Printf("kept from the one before: %s", strings.Join(r.Kept, " "))
	}
	if len(r.Lost) > 0 {
		fmt.Fprintf(a.Err, "warning: %s is no longer good for %s, which the one before was; add --host for what is to stay\n", name, strings.Join(r.Lost, " "))
	}
	if r.Was != "" {
		fmt.Fprintf(a.Err, "warning: %s was a certificate of role %s and is one of %s now\n", name, r.Was, role)
	}
}

func pkiRevokeCommand(app *commands.App, dir *string) *cobra.Command {
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

// certificate is one line of "pki show".
type certificate struct {
	File   string    `json:"file"`
	Name   string    `json:"name"`
	Role   string    `json:"role,omitempty"`
	Hosts  []string  `json:"hosts,omitempty"`
	Expiry time.Time `json:"expiry"`
	Serial string    `json:"serial" doc:"In hex"`
}

func pkiShowCommand(app *commands.App, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "List the certificates in the folder, and when they end",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := filepath.Glob(filepath.Join(*dir, "*.crt"))
			if err != nil {
				return fmt.Errorf("--dir: %w", err)
			}
			if len(files) == 0 {
				return fmt.Errorf("no certificates in %s: \"sluice pki init --dir %s\" makes an authority there", *dir, *dir)
			}
			list := make([]certificate, 0, len(files))
			for _, file := range files {
				cert, err := pki.ReadCert(file)
				if err != nil {
					return err
				}
				c := certificate{File: file, Name: cert.Subject.CommonName, Role: string(pki.RoleOf(cert)), Expiry: cert.NotAfter, Serial: cert.SerialNumber.Text(16)}
				if cert.IsCA {
					c.Role = "authority"
				}
				c.Hosts = slices.Clone(cert.DNSNames)
				for _, ip := range cert.IPAddresses {
					c.Hosts = append(c.Hosts, ip.String())
				}
				list = append(list, c)
			}
			table := commands.Table[certificate]("name role expiry=ENDS hosts serial")
			return app.Print(list, func(w io.Writer) { table(w, list) })
		},
	}
}
