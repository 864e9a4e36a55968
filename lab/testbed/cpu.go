package testbed

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
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

// IdleTime is for how long the processors of this machine have had nothing to do since it
// started, all together.
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
