package testbed

import (
	"context"
	"os/exec"
)

// Multipath returns a place whose programs use MPTCP instead of TCP. They need no change, because
// mptcpize runs them.
func Multipath(at Place) Place { return multipath{at} }

type multipath struct{ Place }

// Command prepares a program of the place to be run by mptcpize.
func (m multipath) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return m.Place.Command(ctx, "mptcpize", append([]string{"run", name}, args...)...)
}
