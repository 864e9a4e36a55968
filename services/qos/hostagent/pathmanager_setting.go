package hostagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// pathManagerSetting is a sysctl that selects the path manager of new connections, with the value
// that selects the user-space one: a name from Linux 6.15 on, a number before.
type pathManagerSetting struct{ path, userspace string }

var pathManagerSettings = []pathManagerSetting{
	{"/proc/sys/net/mptcp/path_manager", "userspace"},
	{"/proc/sys/net/mptcp/pm_type", "1"},
}

// selection is the setting of the path manager for new connections before the agent changed it. A
// file holds it while it is changed, so that the next agent can undo the change if this one is
// killed.
type selection struct {
	pathManagerSetting
	file, before string
}

// selectUserspace makes new connections use the user-space path manager, and records the previous
// setting in file.
func selectUserspace(file string) (*selection, error) {
	for _, m := range pathManagerSettings {
		now, err := os.ReadFile(m.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("which path manager MPTCP uses: %w", err)
		}
		s := &selection{m, file, strings.TrimSpace(string(now))}
		return s, s.set()
	}
	return nil, errors.New("the kernel does not let new MPTCP connections have a path manager in user space (net.mptcp.pm_type): Linux 5.19 or later is needed")
}

func (s *selection) set() error {
	if old, err := os.ReadFile(s.file); err == nil && len(old) > 0 {
		s.before = strings.TrimSpace(string(old))
	} else if err := errors.Join(os.MkdirAll(filepath.Dir(s.file), 0o755), wholefile.Replace(s.file, []byte(s.before), 0o644)); err != nil {
		return fmt.Errorf("noting which path manager MPTCP used: %w", err)
	}
	if err := os.WriteFile(s.path, []byte(s.userspace), 0o644); err != nil {
		return fmt.Errorf("selecting the path manager in user space: %w", err)
	}
	return nil
}

// restore restores the previous path manager of new connections, and removes the file.
func (s *selection) restore() error {
	err := os.WriteFile(s.path, []byte(s.before), 0o644)
	if err == nil {
		err = os.Remove(s.file)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("selecting the path manager of before, %s: %w", s.before, err)
	}
	return nil
}
