package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/sluice-net/sluice/cli/command"
)

// Level is how much a finding matters.
type Level string

// The levels.
const (
	OK   Level = "ok"   // as it should be
	Info Level = "info" // different, and fine
	Warn Level = "warn" // works, but worse than it could
	Fail Level = "fail" // does not work
)

// Finding is the result of one check.
type Finding struct {
	For   string `json:"for"`
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	// Advice says what to do; empty if nothing is to be done.
	Advice string `json:"advice,omitempty"`
	// Note says that the machine is not for this part.
	Note bool `json:"note,omitempty"`
}

// The parts of Sluice that a machine can be checked for. Lab is for sluice-lab to ask for.
const (
	Controller = "controller"
	Agent      = "agent"
	Lab        = "lab"
	// Switch is a machine whose Open vSwitch has a controller.
	Switch = "switch"
	// Mobile is a mobile device; without a configuration nothing can be said of one.
	Mobile = "mobile"
	// Ingress is an ingress gateway of Cinema.
	Ingress = "cinema-ingress"
	// Egress is an egress gateway of Cinema.
	Egress = "cinema-egress"
)

// System is what the checks look at. Tests give another one than Host.
type System struct {
	// Root stands before /proc, /sys and /dev.
	Root string
	// LookPath finds a program.
	LookPath func(string) (string, error)
	// Output runs a program.
	Output func(ctx context.Context, name string, args ...string) ([]byte, error)
	// UID is the effective user.
	UID int
	// Files is the limit of open files.
	Files uint64
}

// Host is this machine.
func Host() *System {
	return &System{
		LookPath: exec.LookPath, UID: os.Geteuid(), Files: openFiles(),
		Output: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, name, args...).Output()
		},
	}
}

// Run checks the machine for one part.
func (s *System) Run(ctx context.Context, part string) []Finding {
	switch part {
	case Controller:
		return about(part, s.controller())
	case Agent:
		return about(part, s.agent())
	case Switch:
		return about(part, s.switches(ctx))
	case Lab:
		return about(part, s.lab(ctx))
	}
	return nil
}

// about has findings be for a part.
func about(part string, all []Finding) []Finding {
	for i := range all {
		all[i].For = part
	}
	return all
}

// Report prints findings. The error says that something does not work.
func Report(o *command.Output, all []Finding) error {
	err := o.Print(all, func(w io.Writer) {
		last := ""
		for _, f := range all {
			if f.For != last {
				title := f.For
				if f.Note {
					title += " (not a role of this machine)"
				}
				fmt.Fprintf(w, "%s\n", title)
				last = f.For
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Level, f.Check, f.Found)
			if f.Advice != "" {
				fmt.Fprintf(w, "\t\t-> %s\n", f.Advice)
			}
		}
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(f Finding) bool { return f.Level == Fail }) {
		return &command.ExitError{Code: command.ExitFailed}
	}
	return nil
}
