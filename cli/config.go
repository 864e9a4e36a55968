package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
)

// configurationOf returns the kind with a name. If the name is empty, it returns the kind of program
// for which the file is probably written.
func configurationOf(kinds []config.Kind, file, name string) (config.Kind, error) {
	if name == "" {
		return config.KindOf(file, kinds)
	}
	return kindNamed(kinds, name), nil
}

// kindNames lists the names of programs that read a configuration.
func kindNames(kinds []config.Kind) (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

// kindNamed returns the kind with a name, which must exist: the flags and arguments accept no other
// names.
func kindNamed(kinds []config.Kind, name string) config.Kind {
	return kinds[slices.Index(kindNames(kinds), name)]
}

// kindFlag defines the flag that names a kind. initial is its default.
func kindFlag(cmd *cobra.Command, kinds []config.Kind, initial string) *string {
	kind := new(string)
	names := kindNames(kinds)
	cmd.Flags().Var(command.Word(kind, initial, names...), "kind", "program whose configuration it is: "+strings.Join(names, ", "))
	return kind
}

func configCommand(app *commands.App, kinds []config.Kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show and create configuration files",
		Long: `Controller, agent, mobile device and gateways read one YAML file each. The environment
(SLUICE_API_LISTEN for api.listen) and the flag --set api.listen=127.0.0.1:8080
override it. Reading is strict: unknown keys, wrong types, values out of range and
contradictory settings are refused, with file, line, key and what would be right.`,
	}
	cmd.AddCommand(configCheckCommand(app, kinds), configShowCommand(app, kinds), configExampleCommand(app, kinds), configRunningCommand(app))
	return cmd
}

func configCheckCommand(app *commands.App, kinds []config.Kind) *cobra.Command {
	var flags commands.ConfigFlags
	var kind *string
	var noFiles bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report everything that is wrong with a configuration file",
		Long: `Reports everything that is wrong with a configuration file. The file's sections show which
program it is for, unless --kind names the program.`,
		Example: `  sluice config check /etc/sluice/controller.yaml
  sluice config check agent.yaml
  sluice config check --no-files controller.yaml   # its certificates are on another machine`,
		Args: command.ExactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			whose, err := configurationOf(kinds, args[0], *kind)
			var read config.Checked
			if err == nil {
				read, err = whose.Load(config.Sources{File: args[0], Set: flags.Set, NoFiles: noFiles})
			}
			var problems config.Problems
			if errors.As(err, &problems) && app.JSON {
				if err := app.Print(problems, nil); err != nil {
					return err
				}
				return &command.ExitError{Code: command.ExitFailed}
			}
			if err != nil {
				return err
			}
			if app.JSON {
				return app.Print([]config.Problem{}, nil)
			}
			if c, ok := read.(*config.Controller); ok {
				for _, w := range c.Warnings {
					app.Printf("%s: warning: %s", args[0], w)
				}
			}
			app.Printf("%s: nothing is wrong with it as the configuration of %s", args[0], whose.Name)
			return nil
		},
	}
	kind = kindFlag(cmd, kinds, "")
	cmd.Flags().BoolVar(&noFiles, "no-files", false, "do not check whether the files that the configuration names exist")
	flags.RegisterSet(cmd)
	return cmd
}

func configShowCommand(app *commands.App, kinds []config.Kind) *cobra.Command {
	var flags commands.ConfigFlags
	var kind *string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the resulting configuration without secrets",
		Long: `Prints all settings with the values that a controller or agent would use. The file
overrides the defaults, the environment the file, and the flags the environment.
Secrets are hidden.`,
		Example: `  sluice config show
  sluice config show --config /etc/sluice/controller.yaml --set log.level=debug
  SLUICE_LOG_LEVEL=debug sluice config show --kind agent -c agent.yaml`,
		Args: command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := kindNamed(kinds, *kind).Load(flags.Sources())
			if err != nil {
				return err
			}
			if app.JSON {
				return app.Print(config.Plain(c), nil)
			}
			_, err = fmt.Fprint(app.Out, config.Render(c))
			return err
		},
	}
	kind = kindFlag(cmd, kinds, kindNames(kinds)[0])
	flags.Register(cmd)
	return cmd
}

func configExampleCommand(app *commands.App, kinds []config.Kind) *cobra.Command {
	return &cobra.Command{
		Use:   "example " + strings.Join(kindNames(kinds), "|"),
		Short: "Print a configuration file with all settings, their defaults and descriptions",
		Example: `  sluice config example controller > controller.yaml
  sluice config example agent > agent.yaml
  sluice config example mobile > mobile.yaml`,
		Args:      command.OneOf(kindNames(kinds)...),
		ValidArgs: kindNames(kinds),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := fmt.Fprint(app.Out, config.Example(kindNamed(kinds, args[0]).Default()))
			return err
		},
	}
}

func configRunningCommand(app *commands.App) *cobra.Command {
	return commands.Get(app, "running", "Print the configuration in force in the controller, without secrets", api.Prefix+"/config", func(w io.Writer, c map[string]any) {
		b, err := yaml.Marshal(c)
		if err != nil {
			b = fmt.Append(nil, err)
		}
		_, _ = w.Write(b) // reported when the table is flushed
	})
}
