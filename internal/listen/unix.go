package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unix opens a Unix socket to which only the user of this process may connect and, unless group is
// negative, the members of that group. It creates the folder if necessary. It replaces a socket
// that a process has left which has ended, but not a file of another type, nor a socket at which a
// process listens.
func Unix(path string, group int) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("socket %s: something else is there", path)
		}
		if conn, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("socket %s: another process listens there", path), conn.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
	}
	// The mode is set before the socket is bound, whatever the umask. If it were set by a later
	// chmod, a client could connect before that and would stay connected.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if group >= 0 {
		if err := errors.Join(os.Chown(path, -1, group), os.Chmod(path, 0o660)); err != nil {
			return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
		}
	}
	return l, nil
}
