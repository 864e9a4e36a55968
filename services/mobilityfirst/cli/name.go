package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

func mfNameCommand(app *commands.App) *cobra.Command {
	return commands.Group("name", "Create names, publish where they are, and look them up", `  sluice mf name new laptop.key
  sluice mf name set --name-key laptop.key 192.0.2.7:5000
  sluice mf name show 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930
  sluice mf name list`, mfNewCommand(app), mfSetCommand(app), mfShowCommand(app),
		commands.Get(app, "list", "List the names that the controller knows, and their places", mfPath+"names", commands.Table[mobilityfirst.NameInfo]("")))
}

func mfNewCommand(app *commands.App) *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Create a name and its key",
		Long: `Creates a private key (Ed25519, PKCS #8, PEM) in a file that only you can read, and prints
the name that belongs to it. Everyone with the file can use the name. Without the file
the name is lost.`,
		Example: `  sluice mf name new laptop.key`,
		Args:    command.ExactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			public, private, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			der, err := x509.MarshalPKCS8PrivateKey(private)
			if err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("the key's file: %w", err)
			}
			err = errors.Join(pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der}), f.Sync(), f.Close())
			if err != nil {
				return fmt.Errorf("the key's file %s: %w", args[0], errors.Join(err, os.Remove(args[0])))
			}
			app.Printf("%v", record.NameOf(public))
			return nil
		},
	}
}

// readKey reads a private key that mfNewCommand has created.
func readKey(file string) (ed25519.PrivateKey, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("the key of the name: %w", err)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("the key of the name: others may read %s (%04o): whoever has it has the name; chmod 600 %s", file, mode, file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the key of the name: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("the key of the name: %s is not PEM", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key of the name: %s: %w", file, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key of the name: %s has a %T: want one of Ed25519, as \"sluice mf name new\" makes it", file, key)
	}
	return private, nil
}

// withNameService calls ask with a client of a name service.
func withNameService(server string, ask func(*gnrs.Client) error) (err error) {
	at, err := netip.ParseAddrPort(server)
	if err != nil {
		return &command.UsageError{Err: fmt.Errorf("--names %s: want the address and port of a name service, like %s", server, defaultNames)}
	}
	c, err := gnrs.Dial(at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return ask(c)
}

func mfSetCommand(app *commands.App) *cobra.Command {
	server, key, valid := defaultNames, "", 15*time.Minute
	cmd := &cobra.Command{
		Use:   "set [ADDRESS...]",
		Short: "Publish the addresses of a name",
		Long: `Signs the addresses of a name, and writes them at the name service. An address is an IPv4 address
with a port, or another name. Without any, the name is withdrawn.`,
		Example: `  sluice mf name set --name-key laptop.key 192.0.2.7:5000
  sluice mf name set --name-key laptop.key --valid 2h 192.0.2.7:5000 198.51.100.3:5000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var addresses []gnrswire.Address
			for _, text := range args {
				a, err := parseAddress(text)
				if err != nil {
					return &command.UsageError{Err: err}
				}
				addresses = append(addresses, a)
			}
			if key == "" {
				return &command.UsageError{Err: errors.New("--name-key is missing: the file that \"sluice mf name new\" has created")}
			}
			if valid < time.Second || valid > record.MaxValidity {
				return &command.UsageError{Err: fmt.Errorf("--valid %v: want 1s to %v", valid, record.MaxValidity)}
			}
			private, err := readKey(key)
			if err != nil {
				return err
			}
			now := time.Now()
			r, err := record.Sign(private, uint64(now.UnixNano()), now.Add(valid), addresses...)
			if err != nil {
				return &command.UsageError{Err: err}
			}
			if err := withNameService(server, func(c *gnrs.Client) error { return c.Write(cmd.Context(), r) }); err != nil {
				return err
			}
			app.Printf("%s", formatRecord(r))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&server, "names", server, "address of the name service")
	flags.StringVar(&key, "name-key", key, "file of the name's key")
	flags.DurationVar(&valid, "valid", valid, "how long the addresses are valid")
	return cmd
}

func mfShowCommand(app *commands.App) *cobra.Command {
	server := defaultNames
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show the addresses of a name, as its owner has signed them",
		Example: `  sluice mf name show 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`,
		Args:    command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseName(args[0])
			if err != nil {
				return err
			}
			return withNameService(server, func(c *gnrs.Client) error {
				r, err := c.Lookup(cmd.Context(), name)
				if err != nil {
					return err
				}
				app.Printf("%s", formatRecord(r))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&server, "names", server, "address of the name service")
	return cmd
}

// parseAddress parses an address of a name.
func parseAddress(text string) (gnrswire.Address, error) {
	if at, err := netip.ParseAddrPort(text); err == nil && at.Addr().Is4() {
		return gnrswire.AddrPortOf(at), nil
	}
	if name, err := frame.ParseGUID(text); err == nil {
		return gnrswire.NameOf(name), nil
	}
	return gnrswire.Address{}, fmt.Errorf("%q: want an IPv4 address with a port, like 192.0.2.7:5000, or a name of 40 hexadecimal digits", text)
}

// formatRecord returns a record for people to read.
func formatRecord(r *record.Record) string {
	where := make([]string, len(r.Addresses))
	for i, a := range r.Addresses {
		where[i] = a.String()
	}
	if len(where) == 0 {
		where = []string{"nowhere"}
	}
	return fmt.Sprintf("%v: %s, until %s", r.GUID(), strings.Join(where, ", "), time.Unix(r.Until, 0).UTC().Format(time.RFC3339))
}
