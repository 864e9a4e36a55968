package doctor

import (
	"context"
	"os"
	"os/exec"
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
	var out []Finding
	switch part {
	case Controller:
		out = s.controller()
	case Agent:
		out = s.agent()
	case Switch:
		out = s.switches(ctx)
	case Lab:
		out = s.lab(ctx)
	}
	for i := range out {
		out[i].For = part
	}
	return out
}
