package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-net/sluice/config"
)

// role is a part of Sluice that a machine may be for.
type role struct {
	part string
	// file is its configuration's name; empty for what has none.
	file string
	load func(config.Sources) (any, error)
	// plain is the configuration as the package brings it, but for its folders.
	plain func() any
	// ask checks the machine for what the configuration says, by which user it is run.
	ask func(ctx context.Context, c any, unit *account) []Finding
	// seen says of a role without a configuration that the machine has it.
	seen func(context.Context, *System) bool
}

func roles() []role {
	return []role{
		{
			part: Controller, file: "controller.yaml",
			load:  func(s config.Sources) (any, error) { return config.LoadController(s) },
			plain: func() any { return config.DefaultController() },
			ask: func(ctx context.Context, c any, unit *account) []Finding {
				controller := c.(*config.Controller)
				return append(ForController(ctx, controller), unit.reads(ctx, Controller, controller)...)
			},
		},
		{
			part: Agent, file: "agent.yaml",
			load:  func(s config.Sources) (any, error) { return config.LoadAgent(s) },
			plain: func() any { return config.DefaultAgent() },
			ask: func(ctx context.Context, c any, unit *account) []Finding {
				agent := c.(*config.Agent)
				return append(ForAgent(ctx, agent), unit.reads(ctx, Agent, agent)...)
			},
		},
		{
			part: Mobile, file: "mobile.yaml",
			load:  func(s config.Sources) (any, error) { return config.LoadMobile(s) },
			plain: func() any { return config.DefaultMobile() },
			ask:   func(ctx context.Context, c any, _ *account) []Finding { return ForMobile(ctx, c.(*config.Mobile)) },
		},
		{part: Switch, seen: func(ctx context.Context, s *System) bool { return s.isSwitch(ctx) }},
	}
}

// Parts lists what a machine can be checked for.
func Parts() []string {
	var parts []string
	for _, r := range roles() {
		parts = append(parts, r.part)
	}
	return parts
}

// Examine checks the machine for its roles, and notes what the other parts would lack:
// only roles can fail. The roles are those asked for, or else the ones whose
// configuration in the folder says anything that the package's own does not.
func (s *System) Examine(ctx context.Context, folder string, asked []string) []Finding {
	var needed, notes []Finding
	for _, r := range roles() {
		c, err := r.read(folder)
		switch {
		case slices.Contains(asked, r.part) || len(asked) == 0 && (r.given(c, err) || r.seen != nil && r.seen(ctx, s)):
			needed = append(needed, s.examine(ctx, r, folder, c, err)...)
		case len(asked) == 0:
			for _, f := range s.Run(ctx, r.part) {
				notes = append(notes, f.note())
			}
			if errors.Is(err, fs.ErrPermission) {
				notes = append(notes, Finding{For: r.part, Check: "configuration", Level: Info, Found: err.Error(), Advice: "whether the machine has this role can be seen by root only, or say it by --role", Note: true})
			}
		}
	}
	return append(needed, notes...)
}

// read reads the role's configuration; one that is wrong comes with its error.
func (r role) read(folder string) (any, error) {
	if r.file == "" {
		return nil, fs.ErrNotExist
	}
	return r.load(config.Sources{File: filepath.Join(folder, r.file), Env: os.Environ()})
}

// given says whether a configuration gives the machine the role.
func (r role) given(c any, err error) bool {
	var wrong config.Problems
	if err != nil && !errors.As(err, &wrong) {
		return false
	}
	if len(config.Changed(c, r.plain(), "data_dir", "state_dir")) > 0 {
		return true
	}
	// An example may lack what only its owner knows; anything else that is wrong was written.
	var usual config.Problems
	_, err = r.load(config.Sources{})
	_ = errors.As(err, &usual)
	return slices.ContainsFunc(wrong, func(p config.Problem) bool {
		return !slices.ContainsFunc(usual, func(u config.Problem) bool { return u.Key == p.Key && u.Wrong == p.Wrong })
	})
}

func (s *System) examine(ctx context.Context, r role, folder string, c any, err error) []Finding {
	out := s.Run(ctx, r.part)
	if r.file == "" {
		return out
	}
	file := filepath.Join(folder, r.file)
	f := Finding{For: r.part, Check: "configuration", Level: OK, Found: file}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Level, f.Found = Info, file+" is not there"
		f.Advice = fmt.Sprintf("sluice config example %s prints one; --dir names another folder", r.part)
	case err != nil:
		f.Level, f.Found = Fail, err.Error()
		f.Advice = fmt.Sprintf("sluice config check --kind %s %s", r.part, file)
	}
	out = append(out, f)
	if err == nil {
		out = append(out, r.ask(ctx, c, unitAccount(s.UID))...)
	}
	return out
}

// note is a finding about what the machine is not for.
func (f Finding) note() Finding {
	f.Note = true
	if f.Level == Fail || f.Level == Warn {
		f.Level = Info
	}
	return f
}
