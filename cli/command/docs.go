package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Docs describes the parts of a program's documentation that are not made from its commands.
type Docs struct {
	// Reference returns the files of the program's reference, by name.
	Reference func() (map[string]string, error)
	// Files is the section FILES of the program's manual page in roff, or "".
	Files string
}

// docsCommand returns the command that writes the reference documentation. It is hidden, because
// users read the files that it writes.
func docsCommand(o *Output, docs Docs) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs [man]",
		Short:  "Write the generated reference, or print the manual page",
		Hidden: true,
		Args:   UpTo("man"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if args[0] != "man" {
					return &UsageError{fmt.Errorf("%q: the only argument is man", args[0])}
				}
				_, err := fmt.Fprint(o.Out, ManPage(cmd.Root(), docs))
				return err
			}
			if dir == "" {
				return &UsageError{errors.New("--dir is missing")}
			}
			files, err := docs.Reference()
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

// Generated returns the first lines of the files of a program's reference.
func Generated(program string) string {
	return fmt.Sprintf("<!-- Made by %q; changes here are lost. -->\n\n", program+" docs --dir docs/reference")
}

// Reference returns the reference of all of a program's commands in Markdown.
func Reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# Commands of %s\n\n", Generated(root.Name()), root.Name())
	fmt.Fprintf(&b, "%s\n\nFlags of all commands:\n\n%s\n", root.Long, flagTable(root.PersistentFlags()))
	Each(root, func(c *cobra.Command) {
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
		if table := flagTable(c.LocalNonPersistentFlags()); table != "" && !isGroup(c) {
			b.WriteString(table + "\n")
		}
	})
	return b.String()
}

// Each calls visit for each documented command, sorted by name.
func Each(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			Each(sub, visit)
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

// ManPage returns a program's manual page in roff.
func ManPage(root *cobra.Command, docs Docs) string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Sluice\" \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %[2]s\n.I command\n[\\fIflags\\fR]\n.SH DESCRIPTION\n",
		escape.Replace(strings.ToUpper(root.Name())), escape.Replace(root.Name()), escape.Replace(root.Short))
	b.WriteString(escape.Replace(root.Long) + "\n.SH COMMANDS\n")
	Each(root, func(c *cobra.Command) {
		if c.Runnable() && !isGroup(c) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape.Replace(strings.TrimSuffix(c.UseLine(), " [flags]")), escape.Replace(c.Short))
		}
	})
	b.WriteString(".SH OPTIONS\nThese are understood by all commands.\n")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape.Replace("--"+f.Name), escape.Replace(f.Usage))
	})
	fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", escape.Replace(strings.ReplaceAll(exitCodes, "\n", "\n.br\n")))
	if docs.Files != "" {
		b.WriteString(".SH FILES\n" + docs.Files)
	}
	return b.String()
}
