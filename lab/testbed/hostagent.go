package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/lab"
)

// StartHostAgent runs the daemon for large connections on a host, with further arguments, and
// returns when it manages new connections. Its output and its state are files in dir.
func StartHostAgent(ctx context.Context, h *lab.LiveHost, binary, dir string, args ...string) (*Daemon, error) {
	state := filepath.Join(dir, "host-"+h.Name())
	d, err := StartDaemon(ctx, h, state+".log", binary, append([]string{"host", "run", "--state", state}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("host agent of %s: %w", h.Name(), err)
	}
	if err := Poll(ctx, "the host agent of "+h.Name(), func() error { return checkPathManager(h) }); err != nil {
		d.Stop()
		return nil, fmt.Errorf("%w: %s", err, Tail(state+".log", lastWords))
	}
	return d, nil
}

// checkPathManager returns an error if the kernel's path manager would manage new connections of a host.
func checkPathManager(h *lab.LiveHost) error {
	return h.Do(func() error {
		kind, err := os.ReadFile("/proc/sys/net/mptcp/pm_type")
		if err == nil && strings.TrimSpace(string(kind)) != "1" {
			err = fmt.Errorf("net.mptcp.pm_type is %s", kind)
		}
		return err
	})
}
