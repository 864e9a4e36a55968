package commands

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
)

// ContextCommand returns the commands for the operator's file of contexts.
func ContextCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Keep the addresses and credentials of controllers under names",
		Long: `Keeps the URL, the authority, and the certificate or token file of each controller in
a file: ~/.config/sluice/contexts.yaml unless SLUICE_CONTEXTS names another one. The
certificate and token files stay where they are. --context NAME, or the variable
SLUICE_CONTEXT, chooses a context. It replaces the other variables, and flags override
it. If neither flags nor variables describe a connection, the current context is used.`,
		Example: `  sluice context add campus --server https://192.0.2.1:8443 \
      --ca ca.crt --cert alice.crt --key alice.key
  sluice context add lab --server http://127.0.0.1:8080 --token-file token
  sluice context use campus
  sluice --context lab status`,
	}
	cmd.AddCommand(contextListCommand(app), contextUseCommand(app), contextAddCommand(app), contextRemoveCommand(app))
	return cmd
}

// contextLine is one line of "context list".
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
		Short: "List the contexts",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := Contexts()
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
			table := Table[contextLine]("current name server ca cert token_file")
			return app.Print(list, func(w io.Writer) { table(w, list) })
		},
	}
}

// changeContexts returns a command that changes the operator's file and prints the message that
// change returns.
func changeContexts(app *App, use, short string, change func(all *config.Contexts, name string) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := Contexts()
			if err != nil {
				return err
			}
			done, err := change(all, args[0])
			if err != nil {
				return err
			}
			if err := all.Write(); err != nil {
				return err
			}
			app.Printf("%s", done)
			return nil
		},
	}
}

func contextUseCommand(app *App) *cobra.Command {
	return changeContexts(app, "use NAME", "Make a context the current one", func(all *config.Contexts, name string) (string, error) {
		one, err := all.Get(name)
		all.Current = name
		return fmt.Sprintf("the current context is %s, %s", name, one.Server), err
	})
}

func contextAddCommand(app *App) *cobra.Command {
	const use = "add NAME --server URL [--ca FILE] [--cert FILE --key FILE | --token-file FILE]"
	return changeContexts(app, use, "Keep the connection that the flags describe under a name; the first context becomes current", func(all *config.Contexts, name string) (string, error) {
		one, err := app.newContext(name)
		if err != nil {
			return "", err
		}
		if _, twice := all.Contexts[name]; twice {
			return "", fmt.Errorf("context %s already exists: remove it first with \"sluice context remove %s\"", name, name)
		}
		all.Contexts[name] = one
		if len(all.Contexts) == 1 {
			all.Current = name
		}
		return fmt.Sprintf("context %s added; current is %s", name, all.Current), nil
	})
}

func contextRemoveCommand(app *App) *cobra.Command {
	return changeContexts(app, "remove NAME", "Remove a context; the files that it names stay", func(all *config.Contexts, name string) (string, error) {
		_, err := all.Get(name)
		delete(all.Contexts, name)
		if all.Current == name {
			all.Current = ""
		}
		return fmt.Sprintf("context %s removed", name), err
	})
}

// newContext returns a context with the flags' values, if a client can be made from it.
func (a *App) newContext(name string) (config.Context, error) {
	var none config.Context
	if err := config.CheckContextName(name); err != nil {
		return none, &command.UsageError{Err: err}
	}
	if !a.connection.flags.Changed("server") {
		return none, &command.UsageError{Err: errors.New("--server is missing")}
	}
	for _, s := range settingsOf(&a.connection.at) {
		if !a.connection.flags.Changed(s.flag) {
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
	a.connection.context = name // without files of its own, a context has no token
	c, err := a.connect()
	if err != nil {
		return none, err
	}
	c.Close()
	return a.connection.at, nil
}
