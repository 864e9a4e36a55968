package drift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Sysctl returns a setting of the kernel, as a thing with a value. path is its file below /proc/sys.
// A setting whose file no longer exists has gone with its interface, and does not differ.
func Sysctl(path, value string) Thing {
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", ".")
	return Thing{Name: name, Interval: PollInterval, Restore: func(context.Context) (int, error) {
		now, err := os.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return 0, nil
		case err != nil:
			return 0, err
		case string(bytes.TrimSpace(now)) == value:
			return 0, nil
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return 1, fmt.Errorf("%s is %q instead of %q: %w", name, bytes.TrimSpace(now), value, err)
		}
		return 1, nil
	}}
}
