package testbed

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that a process has used in user and kernel mode, including that of
// threads that have ended: its CPU clock (clock_getcpuclockid(3)). It does not include work that
// the kernel does for the process in softirqs elsewhere.
func CPUTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: the time that the scheduler counts
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// IdleTime returns the sum of the idle times of this machine's processors since it started.
func IdleTime() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read how busy the machine is: %w", err)
	}
	s, err := fs.Stat()
	if err != nil {
		return 0, fmt.Errorf("read how busy the machine is: %w", err)
	}
	return time.Duration((s.CPUTotal.Idle + s.CPUTotal.Iowait) * float64(time.Second)), nil
}
