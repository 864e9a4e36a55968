package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace bounds the time that a process has to end by itself. killGrace bounds the time that the
// kernel has to end it: a daemon with many ports takes seconds on a busy machine.
const (
	stopGrace = 3 * time.Second
	killGrace = 40 * time.Second
)

// process identifies a process uniquely: process IDs are used again, but not with the same start
// time.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func self() process {
	start, _ := startTime(os.Getpid()) // The process's own entry of /proc always exists.
	return process{PID: os.Getpid(), Start: start}
}

// alive reports whether the process still runs.
func (p process) alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// startTime reads field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != ')' { // The command's name may hold anything, and ends at the last parenthesis.
			continue
		}
		var skip string
		var start uint64
		fields := make([]any, 0, 20)
		for range 19 {
			fields = append(fields, &skip)
		}
		_, err := fmt.Sscan(string(b[i+1:]), append(fields, &start)...)
		return start, err
	}
	return 0, errors.New("malformed stat")
}

// endProcess asks a process to end, kills it if it does not, and waits until it has ended.
func endProcess(ctx context.Context, pid int) error {
	return signalUntilGone(ctx, pid, stopStep{unix.SIGTERM, stopGrace}, stopStep{unix.SIGKILL, killGrace})
}

// killProcess kills a process and waits until it is gone.
func killProcess(ctx context.Context, pid int) error {
	return signalUntilGone(ctx, pid, stopStep{unix.SIGKILL, killGrace})
}

// stopStep is a signal, and the time in which a process must end after it.
type stopStep struct {
	signal unix.Signal
	limit  time.Duration
}

func signalUntilGone(ctx context.Context, pid int, steps ...stopStep) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for _, step := range steps {
		if err := unix.PidfdSendSignal(fd, step.signal, nil, 0); err != nil {
			return nil // It has ended meanwhile.
		}
		if waitExit(ctx, fd, step.limit) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("process %d does not end", pid), ctx.Err())
}

// waitExit waits until the process of a pidfd has ended, and reports whether it has.
func waitExit(ctx context.Context, pidfd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 50); err == nil && n > 0 {
			return true
		}
	}
	return false
}
