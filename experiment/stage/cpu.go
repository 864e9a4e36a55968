package stage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc, 1/100 s on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// CPUTime is the CPU time that a process has used in user and kernel mode.
// Work that the kernel does for it in softirqs elsewhere is not in it.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return parseStat(string(text))
}

func parseStat(text string) (time.Duration, error) {
	// The name, in brackets, may contain spaces and brackets.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, fmt.Errorf("process status has %d fields", len(fields))
	}
	var sum time.Duration
	for _, f := range fields[utime : stime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status: %w", err)
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}
