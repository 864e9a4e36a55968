// Package clitest has tests for the commands of both programs, sluice and sluice-lab.
package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help checks that every command describes its purpose, and that commands with arguments have
// examples.
func Help(t *testing.T, c *cobra.Command) {
	t.Helper()
	if c.Short == "" || strings.HasSuffix(c.Short, ".") {
		t.Errorf("%s: the short description is %q", c.CommandPath(), c.Short)
	}
	if c.HasParent() && c.Parent().HasParent() && strings.ContainsAny(c.Use, " ") && !c.HasExample() && !c.Parent().HasExample() {
		t.Errorf("%s takes arguments but neither it nor its parent shows an example", c.CommandPath())
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		all := c.Root().PersistentFlags().Lookup(f.Name)
		if c.Root() != c && all != nil && f != all {
			t.Errorf("%s: its flag --%s hides the one that all commands have", c.CommandPath(), f.Name)
		}
	})
	for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
		if len(line) > 100 {
			t.Errorf("%s: a line of the help has %d characters: %s", c.CommandPath(), len(line), line)
		}
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			Help(t, sub)
		}
	}
}

// Reference checks that the files in a folder are those that the program generates.
func Reference(t *testing.T, dir, program string, files map[string]string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != text {
			t.Errorf("docs/reference/%s is not current (%v): run \"go run ./cmd/%s docs --dir docs/reference\"", name, err, program)
		}
	}
}

// ManPage checks that man formats a page without a warning.
func ManPage(t *testing.T, text string) {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed")
	}
	file := filepath.Join(t.TempDir(), "page.1")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", file)
	cmd.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8", "MANWIDTH=80")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) < 1000 {
		t.Errorf("%v: %s", err, out)
	}
}
