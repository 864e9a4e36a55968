package testbed

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ResetPeak resets the peak of a process's resident memory.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("count the memory of process %d anew: %w", pid, err)
	}
	return nil
}

// PeakMemory returns the largest resident memory in bytes of a process since [ResetPeak], or since
// it was started.
func PeakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return parsePeak(string(text))
}

func parsePeak(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if size, found := strings.CutPrefix(line, "VmHWM:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("process status: %w", err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("process status has no VmHWM")
}
