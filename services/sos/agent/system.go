package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tunedBuffer returns the size, in bytes, to which the kernel's own tuning can extend a socket's
// buffers.
func tunedBuffer() int {
	return min(lastField("/proc/sys/net/ipv4/tcp_rmem"), lastField("/proc/sys/net/ipv4/tcp_wmem"))
}

// lastField returns the last number of a sysctl; 0 if it cannot be read.
func lastField(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return 0
	}
	return n
}

// slowStartAfterIdle is the setting by which idle connections lose their congestion window.
const slowStartAfterIdle = "/proc/sys/net/ipv4/tcp_slow_start_after_idle"

// keepCongestionState makes idle connections keep their congestion window, and reports whether it
// has to keep the setting so. The agent changes that setting only in a network namespace of its own.
// In the machine's namespace, only the operator may change it.
func keepCongestionState() (declared bool, err error) {
	// This file exists only in the machine's first network namespace.
	if _, err := os.Stat("/proc/sys/net/core/netdev_max_backlog"); err != nil {
		err := os.WriteFile(slowStartAfterIdle, []byte("0"), 0o644)
		return err == nil, err
	}
	if lastField(slowStartAfterIdle) != 0 {
		return false, errors.New("the agent changes it only in a network namespace of its own")
	}
	return false, nil
}

// wantedFiles is the number of open files that a thousand sessions need at most.
const wantedFiles = 1 << 14

// raiseFiles raises the limit of open files as far as permitted.
func raiseFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if l.Cur < l.Max {
		l.Cur = l.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return err
		}
	}
	if l.Cur < wantedFiles {
		return fmt.Errorf("the limit is %d, %d are wanted: raise LimitNOFILE", l.Cur, wantedFiles)
	}
	return nil
}
