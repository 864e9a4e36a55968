package experiment

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine describes the machine on which figures were measured.
type Machine struct {
	CPU     string
	Cores   int
	Memory  string
	Kernel  string
	Switch  string // Open vSwitch's version
	LoadAvg string // before the first measurement: shows other work on the machine
}

// describeMachine reads the description. What cannot be read stays empty.
func describeMachine(ctx context.Context) Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: firstValue("/proc/cpuinfo", "model name")}
	if kb := firstValue("/proc/meminfo", "MemTotal"); kb != "" {
		var n float64
		if _, err := fmt.Sscanf(kb, "%f kB", &n); err == nil {
			m.Memory = fmt.Sprintf("%.0f GiB", n/(1<<20))
		}
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = "Linux " + unix.ByteSliceToString(uts.Release[:]) + " " + runtime.GOARCH
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ovs-vswitchd", "--version").Output(); err == nil {
		m.Switch, _, _ = strings.Cut(string(out), "\n")
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAvg, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

// firstValue returns the value of the first line "key : value" of a file.
func firstValue(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		k, v, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
