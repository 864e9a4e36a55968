package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"

	"github.com/sluice-net/sluice/config"
)

// unitUser is whom the package's units run controller and agent as.
const unitUser = "sluice"

// account is a user on whose behalf files are tried.
type account struct {
	name       string
	credential *syscall.Credential
}

// unitAccount is the account of the units. It is nil where there is none, or where only
// root could try it.
func unitAccount(uid int) *account {
	if uid != 0 {
		return nil
	}
	a, err := findAccount(unitUser)
	if err != nil {
		return nil
	}
	return a
}

func findAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	ids := []string{u.Uid, u.Gid}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	numbers := make([]uint32, 0, 2+len(groups))
	for _, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, uint32(n))
	}
	return &account{name, &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}}, nil
}

// reads tries, as the account, the files that a configuration names.
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
				For: part, Check: file, Level: Fail, Found: fmt.Sprintf("cannot be read by %s, whom the unit runs as", a.name),
				Advice: fmt.Sprintf("chgrp %s %s; chmod g+r %s; and its folders must be open to it", a.name, file, file),
			})
		case err != nil:
			out = append(out, Finding{For: part, Check: file, Level: Warn, Found: err.Error(), Advice: "see by hand whether " + a.name + " can read it"})
		}
	}
	return out
}
