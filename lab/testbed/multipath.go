package testbed

import (
	"context"
	"os/exec"
)

// Multipath is a place whose programs use MPTCP wherever they ask for TCP, unchanged, by
// mptcpize.
func Multipath(at Place) Place { return multipath{at} }

type multipath struct{ Place }

// Command is that of the place.
func (m multipath) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return m.Place.Command(ctx, "mptcpize", append([]string{"run", name}, args...)...)
}
