package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab"
)

// runLab runs a lab command and returns what it prints.
func runLab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code, out, errOut := run(ctx, args...)
	if code != command.ExitOK {
		return out, errors.New(errOut)
	}
	return out, nil
}

func TestLabGeneratePrintsEveryShape(t *testing.T) {
	for _, shape := range labShapes() {
		text, err := runLab(t, "generate", shape.name, "--rate", "50Mbit", "--rtt", "20ms", "--loss", "0.1%", "--mtu", "9000")
		if err != nil {
			t.Errorf("%s: %v", shape.name, err)
			continue
		}
		topology, err := lab.Parse(shape.name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", shape.name, err, text)
			continue
		}
		shaped := 0
		for _, l := range topology.Links {
			if l.AtoB.Rate == 50e6 && l.BtoA.Delay == 10*time.Millisecond && l.AtoB.Loss == 0.001 {
				shaped++
			}
		}
		if shaped == 0 || topology.Links[0].MTU != 9000 {
			t.Errorf("%s: the flags are not in the topology:\n%s", shape.name, text)
		}
	}
}

func TestLabCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, says string }{
		{"generate", "is missing"},
		{"generate star", "is not one of line"},
		{"generate wan --rate 100", "300Mbit"},
		{"generate wan --loss 2", "percent"},
		{"generate wan --rtt 10ms --delay 5ms", "rtt"},
		{"generate fat-tree --size 5", "even"},
		{"generate line --size 1", "2 to 64"},
		{"generate line --jitter 5ms", "more than the delay"},
		{"up nofile.yaml", "no such file"},
		{"down nolab", "no such lab"},
		{"down --all some", "not both"},
		{"exec client", "COMMAND is missing"},
		{"exec client -- true", "no such lab"},
		{"link up", "is missing"},
		{"link down wan", "no such lab"},
		{"link move wan", "SWITCH is missing"},
		{"status nolab", "no such lab"},
	} {
		args := strings.Fields(c.args)
		if args[0] != "generate" { // The flag stands before the node of exec: what follows belongs to the command.
			args = slices.Insert(args, 1, "--run-dir", dir)
		}
		_, err := runLab(t, args...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: says %v, want %q", c.args, err, c.says)
		}
	}
}

func TestLabUpStatusLinkDown(t *testing.T) {
	live.Test(t)
	dir := t.TempDir()
	name := fmt.Sprintf("cli-%d", os.Getpid())
	text, err := runLab(t, "generate", "wan", "--name", name)
	if err != nil {
		t.Fatal(err)
	}
	file := dir + "/wan.yaml"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runDir := dir + "/run"
	step := func(want string, args ...string) {
		t.Helper()
		out, err := runLab(t, append(args, "--run-dir", runDir)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q in:\n%s", strings.Join(args, " "), err, want, out)
		}
	}
	step("is up after", "up", file)
	step("198.18.0.1:6653", "status")
	step("300Mbit, 75ms, 0.05% loss", "status", name)
	step("300Mbit, 75ms, 1% loss", "link", "wan", "--loss", "1%", "--direction", "b-a")
	step("DOWN", "link", "down", "wan")
	step("300Mbit, 75ms", "link", "up", "wan")
	step("DOWN, cable", "link", "down", "server-s2")
	step("s1:eth4", "link", "move", "server-s2", "s1")
	step("DOWN", "status", name)
	step("s2:eth9", "link", "move", "server-s2", "s2", "--port", "9")
	step("is down", "down", name)
	step("no lab is up", "status")
}
