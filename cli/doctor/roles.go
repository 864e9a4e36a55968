package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services"
	cinema "github.com/sluice-net/sluice/services/cinema/cli"
	handover "github.com/sluice-net/sluice/services/handover/cli"
)

// role is a role that a machine may have.
type role struct {
	part string
	// config is the kind of the role's configuration. It is nil for a role without a configuration.
	config *config.Kind
	// ask checks whether the machine has what the configuration c needs. unit is the user of the
	// role's systemd unit, whose access to files is checked, or nil.
	ask func(ctx context.Context, c any, unit *account) []Finding
	// seen reports whether the machine has the role. It is for a role without a configuration.
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
		Mobile: func(ctx context.Context, c any, _ *account) []Finding { return ForMobile(ctx, c.(*handover.Mobile)) },
		Ingress: func(ctx context.Context, c any, unit *account) []Finding {
			return append(ForIngress(ctx, c.(*cinema.Ingress)), unit.reads(ctx, Ingress, c)...)
		},
		Egress: func(ctx context.Context, c any, unit *account) []Finding {
			return append(ForEgress(ctx, c.(*cinema.Egress)), unit.reads(ctx, Egress, c)...)
		},
	}
	for _, k := range commands.Kinds(services.All()) {
		all = append(all, role{part: k.Name, config: &k, ask: ask[k.Name]})
	}
	return append(all, role{part: Switch, seen: func(ctx context.Context, s *System) bool { return s.isSwitch(ctx) }})
}

// Parts returns the names of the roles for which a machine can be checked.
func Parts() []string {
	var parts []string
	for _, r := range roles() {
		parts = append(parts, r.part)
	}
	return parts
}

// Examine checks the machine for its roles, and returns notes about what it lacks for other roles. Only
// findings about its roles can have the level Fail. Its roles are the asked ones. If none is asked, they
// are those whose configuration in the folder differs from the one that the package installs.
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
				notes = append(notes, Finding{For: r.part, Check: "configuration", Level: Info, Found: err.Error(), Advice: "only root can see whether the machine has this role; or name it by --role", Note: true})
			}
		}
	}
	return append(needed, notes...)
}

// read reads the role's configuration. It also returns a configuration with errors.
func (r role) read(folder string) (any, error) {
	if r.config == nil {
		return nil, fs.ErrNotExist
	}
	return r.config.Load(config.Sources{File: r.file(folder), Env: os.Environ()})
}

// file returns the path of the role's configuration.
func (r role) file(folder string) string { return filepath.Join(folder, r.part+".yaml") }

// given reports whether the configuration c shows that the machine has the role. err is the error of
// reading it.
func (r role) given(c any, err error) bool {
	var wrong config.Problems
	if err != nil && !errors.As(err, &wrong) {
		return false
	}
	if len(config.Changed(c, r.config.Default(), "data_dir", "state_dir")) > 0 {
		return true
	}
	// The configuration that the package installs lacks settings that only the operator knows. Any
	// other problem shows that somebody has edited the file.
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

// note converts a finding to one about a role that the machine does not have. Its level is Info at
// most.
func (f Finding) note() Finding {
	f.Note = true
	if f.Level == Fail || f.Level == Warn {
		f.Level = Info
	}
	return f
}

// unitUser is the user of the package's systemd units, such as those of controller and agent.
const unitUser = "sluice"

// account is a user for whom access to files is tested.
type account struct {
	name       string
	credential *syscall.Credential
}

// unitAccount returns the account of unitUser. It returns nil if there is none, or if this process is
// not root and so cannot test the account's access.
func unitAccount(uid int) *account {
	if uid != 0 {
		return nil
	}
	a, _ := findAccount(unitUser)
	return a
}

func findAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	var numbers []uint32
	for _, id := range append([]string{u.Uid, u.Gid}, groups...) {
		n, wrong := strconv.ParseUint(id, 10, 32)
		err = errors.Join(err, wrong)
		numbers = append(numbers, uint32(n))
	}
	if err != nil {
		return nil, err
	}
	return &account{name, &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}}, nil
}

// reads checks whether the account can read the files that a configuration names.
func (a *account) reads(ctx context.Context, part string, c any) []Finding {
	if a == nil {
		return nil
	}
	var out []Finding
	for _, file := range config.Files(c) {
		cmd := exec.CommandContext(ctx, "test", "-r", file)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
		err := cmd.Run()
		var refused *exec.ExitError
		switch {
		case errors.As(err, &refused):
			out = append(out, Finding{
				For: part, Check: file, Level: Fail, Found: fmt.Sprintf("cannot be read by %s, the user of the unit", a.name),
				Advice: fmt.Sprintf("chgrp %s %s; chmod g+r %s; and its folders must be open to it", a.name, file, file),
			})
		case err != nil:
			out = append(out, Finding{For: part, Check: file, Level: Warn, Found: err.Error(), Advice: "check whether " + a.name + " can read it"})
		}
	}
	return out
}
