package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a command line and returns its exit code and what it wrote.
func run(ctx context.Context, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	a := &app{Output: command.Output{Out: &stdout, Err: &stderr}}
	code = command.Run(ctx, newRoot(a), &a.Output, args)
	return code, stdout.String(), stderr.String()
}

func TestHelp(t *testing.T) { clitest.Help(t, newRoot(&app{})) }

func TestReferenceIsCurrent(t *testing.T) {
	files, err := Reference()
	clitest.Reference(t, "../../docs/reference", "sluice-lab", files, err)
}

func TestManPage(t *testing.T) {
	clitest.ManPage(t, command.ManPage(newRoot(&app{}), command.Docs{}))
}

// TestWrongInputIsNamed runs commands with invalid input. It checks that the message names the
// input, says what would be valid, and that the exit code is that of a wrong command line.
func TestWrongInputIsNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"generate", []string{"sluice-lab generate: line|ring|tree", "is missing"}},
		{"generate star", []string{`"star" is not one of line, ring`}},
		{"generate line extra", []string{`"extra" is one argument too many`}},
		{"generate line --size x", []string{`--size "x": write a whole number`}},
		{"generate line --size 1", []string{"--size 1: write a number from 2 to 64"}},
		{"generate tree --depth 9", []string{"--depth 9: write a number from 1 to 6"}},
		{"generate tree --depth 9 --fanout 0", []string{"--depth 9", "--fanout 0: write a number from 1 to 16"}},
		{"generate wan --size 5", []string{"--size does not apply to the shape wan"}},
		{"generate line --fanout 3", []string{"--fanout does not apply to the shape line"}},
		{"generate fat-tree --size 5", []string{"--size 5", "even number of ports"}},
		{"exec", []string{"sluice-lab exec: NODE COMMAND is missing"}},
		{"exec client", []string{"COMMAND is missing"}},
		{"exec client --", []string{"COMMAND is missing after --"}},
		{"up", []string{"FILE is missing"}},
		{"status a b", []string{`"b" is one argument too many`}},
		{"experiment run", []string{"NAME is missing"}},
	} {
		code, out, errOut := run(t.Context(), strings.Fields(c.args)...)
		if code != command.ExitUsage || out != "" {
			t.Errorf("%s: exit code %d, output %q", c.args, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s: does not say %q:\n%s", c.args, want, errOut)
			}
		}
	}
}

// TestProgramsAreFound checks that the program sluice is looked up beside this one, unless it is
// named.
func TestProgramsAreFound(t *testing.T) {
	dir := t.TempDir()
	program, text := filepath.Join(dir, "sluice"), filepath.Join(dir, "text")
	if err := errors.Join(os.WriteFile(program, nil, 0o700), os.WriteFile(text, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if sluice, self, err := (&app{given: program}).programs(); err != nil || sluice != program || self == "" {
		t.Errorf("%q, %q, %v", sluice, self, err)
	}
	for given, want := range map[string]string{"": "--sluice", text: "not a program", dir: "not a program", program + "x": "no such file"} {
		if _, _, err := (&app{given: given}).programs(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--sluice %q: %v, want %q", given, err, want)
		}
	}
	if os.Geteuid() == 0 {
		code, _, errOut := run(t.Context(), "demo", "--sluice", program+"x")
		if code != command.ExitFailed || !strings.Contains(errOut, "make build") {
			t.Errorf("exit code %d: %s", code, errOut)
		}
	}
}
