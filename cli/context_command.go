package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
)

func contextCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Keep the controllers that you work with, and what opens them, under names",
		Long: `Keeps server, authority and certificate or token file of controllers in a file,
~/.config/sluice/contexts.yaml unless SLUICE_CONTEXTS names another; the files stay
where they are. --context NAME, or the variable SLUICE_CONTEXT, chooses one: it stands
in place of the other variables, and flags go over it. Where neither flags nor
variables say anything of a connection, the current context is used.`,
		Example: `  sluice context add campus --server https://192.0.2.1:8443 \
      --ca ca.crt --cert alice.crt --key alice.key
  sluice context add lab --server http://127.0.0.1:8080 --token-file token
  sluice context use campus
  sluice --context lab status`,
	}
	cmd.AddCommand(contextListCommand(app), contextUseCommand(app), contextAddCommand(app), contextRemoveCommand(app))
	return cmd
}

// contextLine is a line of "context list".
type contextLine struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Server  string `json:"server"`
	CA      string `json:"ca,omitempty"`
	Cert    string `json:"cert,omitempty"`
	Token   string `json:"token_file,omitempty"`
}

func contextListCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts; a star marks the current one",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := contexts()
			if err != nil {
				return err
			}
			list := []contextLine{}
			for _, name := range all.Names() {
				one, err := all.Get(name)
				if err != nil {
					return err
				}
				list = append(list, contextLine{Name: name, Current: name == all.Current, Server: one.Server, CA: one.CA, Cert: one.Cert, Token: one.TokenFile})
			}
			return app.Print(list, func(w io.Writer) {
				fmt.Fprintln(w, "\tNAME\tSERVER\tOPENED BY")
				for _, l := range list {
					mark, by := "", l.Cert
					if l.Current {
						mark = "*"
					}
					if by == "" {
						by = l.Token
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, l.Name, l.Server, by)
				}
			})
		},
	}
}

func contextUseCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Args:  command.ExactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := contexts()
			if err != nil {
				return err
			}
			one, err := all.Get(args[0])
			if err != nil {
				return err
			}
			all.Current = args[0]
			if err := all.Write(); err != nil {
				return err
			}
			app.Printf("the current context is %s, %s", args[0], one.Server)
			return nil
		},
	}
}

func contextAddCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME --server URL [--ca FILE] [--cert FILE --key FILE | --token-file FILE]",
		Short: "Keep what the flags say of a controller under a name; the first becomes current",
		Args:  command.ExactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := contexts()
			if err != nil {
				return err
			}
			one, err := app.newContext(args[0])
			if err != nil {
				return err
			}
			if _, twice := all.Contexts[args[0]]; twice {
				return fmt.Errorf("context %s is there already: \"sluice context remove %s\" makes room", args[0], args[0])
			}
			all.Contexts[args[0]] = one
			if len(all.Contexts) == 1 {
				all.Current = args[0]
			}
			if err := all.Write(); err != nil {
				return err
			}
			app.Printf("context %s added; current is %s", args[0], all.Current)
			return nil
		},
	}
}

// newContext makes a context of the flags, if a client can be made of it.
func (a *App) newContext(name string) (config.Context, error) {
	var none config.Context
	if err := config.CheckContextName(name); err != nil {
		return none, &command.UsageError{Err: err}
	}
	if !a.flags.Changed("server") {
		return none, &command.UsageError{Err: errors.New("--server is missing")}
	}
	for _, s := range a.settings() {
		if !a.flags.Changed(s.flag) {
			*s.to = ""
			continue
		}
		if s.flag == "server" || *s.to == "" {
			continue
		}
		path, err := filepath.Abs(*s.to)
		if err != nil {
			return none, fmt.Errorf("--%s: %w", s.flag, err)
		}
		*s.to = path
	}
	a.context = name // without files of its own, a context has no token
	if _, err := a.token(); err != nil {
		return none, err
	}
	tlsConfig, err := a.tls()
	if err != nil {
		return none, err
	}
	c, err := client.New(client.Options{Server: a.server, TLS: tlsConfig})
	if err != nil {
		return none, err
	}
	c.Close()
	return config.Context{Server: a.server, CA: a.caFile, Cert: a.certFile, Key: a.keyFile, TokenFile: a.tokenFile}, nil
}

func contextRemoveCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget a context; the files that it names stay",
		Args:  command.ExactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := contexts()
			if err != nil {
				return err
			}
			if _, err := all.Get(args[0]); err != nil {
				return err
			}
			delete(all.Contexts, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			if err := all.Write(); err != nil {
				return err
			}
			app.Printf("context %s removed", args[0])
			return nil
		},
	}
}
