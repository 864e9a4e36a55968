package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
)

// docsCommand writes the reference documentation. It is hidden: users read
// what it writes.
func docsCommand(app *App) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs [man]",
		Short:  "Write the generated reference, or print the manual page",
		Hidden: true,
		Args:   upTo("man"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if args[0] != "man" {
					return &UsageError{fmt.Errorf("%q: the only argument is man", args[0])}
				}
				_, err := fmt.Fprint(app.Out, manPage(cmd.Root()))
				return err
			}
			if dir == "" {
				return &UsageError{errors.New("--dir is missing")}
			}
			files, err := Reference()
			if err != nil {
				return err
			}
			return writeAll(dir, files)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder for the reference")
	return cmd
}

func writeAll(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated begins the files that this package writes.
const generated = "<!-- Made by \"sluice docs --dir docs/reference\"; changes here are lost. -->\n\n"

// Reference is the generated reference, by file name: commands, configuration
// and the OpenAPI document.
func Reference() (map[string]string, error) {
	app := &App{Out: os.Stdout, Err: os.Stderr}
	openapi, err := controller.OpenAPI()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"cli.md":           generated + commandReference(New(app)),
		"configuration.md": generated + configurationReference(),
		"openapi.yaml":     openapi,
	}, nil
}

func configurationReference() string {
	controller := config.DefaultController()
	controller.DataDir = "/var/lib/sluice"
	return "# Configuration\n\n" +
		"Controller, agent and mobile device read one YAML file each (`--config`). Over it go the environment, where `api.listen` is\n" +
		"`SLUICE_API_LISTEN`, and `--set api.listen=127.0.0.1:8080`. `sluice config check FILE` says everything that is wrong\n" +
		"with a file, `sluice config show` prints what takes effect, `sluice config example controller` a file to begin with.\n\n" +
		"## Controller\n\n" + config.Reference(controller) + "\n## Agent\n\n" + config.Reference(config.DefaultAgent()) + "\n## Mobile device\n\n" + config.Reference(mobileDevice()) +
		"\n## Contexts\n\nThe operator's file of controllers (`sluice context`), " + contextsFileIs + ".\n\n" + config.Reference(&config.Contexts{})
}

// mobileDevice is the default configuration without what this machine has of its
// own.
func mobileDevice() *config.Mobile {
	m := config.DefaultMobile()
	m.StateDir = "/var/lib/sluice/mobile"
	return m
}

// commandReference is the Markdown reference of all commands.
func commandReference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n")
	fmt.Fprintf(&b, "%s\n\nFlags of all commands:\n\n%s\n", root.Long, flagTable(root.PersistentFlags()))
	each(root, func(c *cobra.Command) {
		if c == root {
			return
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", c.CommandPath(), longOf(c))
		if c.Runnable() && !isGroup(c) {
			fmt.Fprintf(&b, "    %s\n\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
		}
		if c.HasExample() {
			fmt.Fprintf(&b, "Examples:\n\n%s\n\n", indent(c.Example))
		}
		if table := flagTable(c.LocalNonPersistentFlags()); table != "" {
			b.WriteString(table + "\n")
		}
	})
	return b.String()
}

// each visits the documented commands in the order of their names.
func each(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			each(sub, visit)
		}
	}
}

func longOf(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func indent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = "    " + strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

// fromMachine are defaults that differ from one machine to the next.
var fromMachine = []string{"server", "token-file", "ca", "cert", "key", "config"}

func flagTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if b.Len() == 0 {
			b.WriteString("| flag | default | what it does |\n|---|---|---|\n")
		}
		value := f.DefValue
		if slices.Contains(fromMachine, f.Name) {
			value = ""
		}
		if f.Name == "server" {
			value = defaultServer
		}
		if value == "[]" || value == "false" {
			value = ""
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	return b.String()
}

// manPage is the manual page, in roff.
func manPage(root *cobra.Command) string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	b.WriteString(".TH SLUICE 1 \"\" \"Sluice\" \"User Commands\"\n.SH NAME\nsluice \\- moves data over OpenFlow networks\n.SH SYNOPSIS\n.B sluice\n.I command\n[\\fIflags\\fR]\n.SH DESCRIPTION\n")
	b.WriteString(escape.Replace(root.Long) + "\n.SH COMMANDS\n")
	each(root, func(c *cobra.Command) {
		if c.Runnable() && !isGroup(c) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape.Replace(strings.TrimSuffix(c.UseLine(), " [flags]")), escape.Replace(c.Short))
		}
	})
	b.WriteString(".SH OPTIONS\nThese are understood by all commands.\n")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape.Replace("--"+f.Name), escape.Replace(f.Usage))
	})
	fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", escape.Replace(strings.ReplaceAll(exitCodes, "\n", "\n.br\n")))
	b.WriteString(".SH FILES\n.TP\n/etc/sluice/controller.yaml, /etc/sluice/agent.yaml\nConfigurations.\n.TP\n/var/lib/sluice\nState of the controller, and the token of its API.\n")
	return b.String()
}
