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
	// config is what it reads; nil for what has no configuration.
	config *config.Kind
	// ask checks the machine for what the configuration says, by which user it is run.
	ask func(ctx context.Context, c any, unit *account) []Finding
	// seen says of a role without a configuration that the machine has it.
	seen func(context.Context, *System) bool
}

func roles() (all []role) {
	ask := map[string]func(context.Context, any, *account) []Finding{
		Controller: func(ctx context.Context, c any, unit *account) []Finding {
			return append(ForController(ctx, c.(*config.Controller)), unit.reads(ctx, Controller, c)...)
		},
		Agent: func(ctx context.Context, c any, unit *account) []Finding {
			return append(ForAgent(ctx, c.(*config.Agent)), unit.reads(ctx, Agent, c)...)
		},
		Mobile: func(ctx context.Context, c any, _ *account) []Finding { return ForMobile(ctx, c.(*config.Mobile)) },
	}
	for _, k := range config.Kinds() {
		all = append(all, role{part: k.Name, config: &k, ask: ask[k.Name]})
	}
	return append(all, role{part: Switch, seen: func(ctx context.Context, s *System) bool { return s.isSwitch(ctx) }})
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
	if r.config == nil {
		return nil, fs.ErrNotExist
	}
	return r.config.Load(config.Sources{File: r.file(folder), Env: os.Environ()})
}

// file is where its configuration is.
func (r role) file(folder string) string { return filepath.Join(folder, r.part+".yaml") }

// given says whether a configuration gives the machine the role.
func (r role) given(c any, err error) bool {
	var wrong config.Problems
	if err != nil && !errors.As(err, &wrong) {
		return false
	}
	if len(config.Changed(c, r.config.Default(), "data_dir", "state_dir")) > 0 {
		return true
	}
	// An example may lack what only its owner knows; anything else that is wrong was written.
	var usual config.Problems
	_, err = r.config.Load(config.Sources{})
	_ = errors.As(err, &usual)
	return slices.ContainsFunc(wrong, func(p config.Problem) bool {
		return !slices.ContainsFunc(usual, func(u config.Problem) bool { return u.Key == p.Key && u.Wrong == p.Wrong })
	})
}

func (s *System) examine(ctx context.Context, r role, folder string, c any, err error) []Finding {
	out := s.Run(ctx, r.part)
	if r.config == nil {
		return out
	}
	file := r.file(folder)
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
