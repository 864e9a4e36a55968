package stage

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the CPU time that a process has used in user and kernel mode, its ended
// threads' too: its CPU clock, in nanoseconds (clock_getcpuclockid(3)).
// Work that the kernel does for it in softirqs elsewhere is not in it.
func CPUTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: as the scheduler counts
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
