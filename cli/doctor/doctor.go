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

// Level is the severity of a finding.
type Level string

// These are the levels of findings.
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
	// Advice is the remedy, or "" if none is needed.
	Advice string `json:"advice,omitempty"`
	// Note reports whether the finding is about a role that the machine does not have.
	Note bool `json:"note,omitempty"`
}

// The roles for which a machine can be checked. Lab is checked only for sluice-lab.
const (
	Controller = "controller"
	Agent      = "agent"
	Lab        = "lab"
	// Switch is a machine whose Open vSwitch has a controller.
	Switch = "switch"
	// Mobile is a mobile device. It can be checked only with a configuration.
	Mobile = "mobile"
	// Ingress is an ingress gateway of Cinema.
	Ingress = "cinema-ingress"
	// Egress is an egress gateway of Cinema.
	Egress = "cinema-egress"
)

// System is the machine that the checks examine. Tests use systems that differ from Host.
type System struct {
	// Root is prepended to /proc, /sys and /dev.
	Root string
	// LookPath finds a program.
	LookPath func(string) (string, error)
	// Output runs a program.
	Output func(ctx context.Context, name string, args ...string) ([]byte, error)
	// UID is the effective user identifier.
	UID int
	// Files is the limit of open files.
	Files uint64
}

// Host returns the System that is this machine.
func Host() *System {
	return &System{
		LookPath: exec.LookPath, UID: os.Geteuid(), Files: openFiles(),
		Output: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, name, args...).Output()
		},
	}
}

// Run checks the machine for one role, without a configuration. It returns nil for a role that needs
// one.
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

// about sets the role of findings.
func about(part string, all []Finding) []Finding {
	for i := range all {
		all[i].For = part
	}
	return all
}

// Report prints findings. It returns an error if a finding says that something does not work.
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
