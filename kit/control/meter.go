package control

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// meter measures an agent's load once a second.
type meter struct {
	mu      sync.Mutex
	load    Load
	at      time.Time
	cpu     time.Duration
	in, out uint64
}

// sample updates the load from the totals of payload received from and sent to end hosts, and from
// the payload held now, all in bytes.
func (m *meter) sample(in, out, held uint64) {
	cpu, now := cpuTime(), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	seconds := now.Sub(m.at).Seconds()
	if seconds <= 0 {
		return
	}
	m.load.BitsPerSecondIn = 8 * float64(in-min(in, m.in)) / seconds
	m.load.BitsPerSecondOut = 8 * float64(out-min(out, m.out)) / seconds
	m.load.CPU = (cpu - m.cpu).Seconds() / seconds
	m.load.MemoryBytes, m.load.BufferedBytes = residentMemory(), held
	m.at, m.cpu, m.in, m.out = now, cpu, in, out
}

func (m *meter) now() Load {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMemory returns the process's resident memory in bytes, or zero.
func residentMemory() uint64 {
	var size, resident uint64 // in pages
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(b), &size, &resident)
	}
	return resident * uint64(os.Getpagesize())
}
