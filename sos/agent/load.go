package agent

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// loadMeter measures the agent's load once a second.
type loadMeter struct {
	a *Agent

	mu      sync.Mutex
	load    agentapi.Load
	at      time.Time
	cpu     time.Duration
	in, out uint64
	goneIn  uint64 // bytes of sessions that have ended
	goneOut uint64
}

func newLoadMeter(a *Agent) *loadMeter {
	m := &loadMeter{a: a, at: time.Now(), cpu: cpuTime()}
	m.load.MaxSessions = a.cfg.MaxSessions
	return m
}

// sample takes the figures of the last second.
func (m *loadMeter) sample() {
	in, out, held := m.totals()
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

// totals sums up the bytes of all sessions so far.
func (m *loadMeter) totals() (in, out, held uint64) {
	m.mu.Lock()
	in, out = m.goneIn, m.goneOut
	m.mu.Unlock()
	for _, s := range m.a.list() {
		in += s.out.bytes.Load()
		out += s.in.bytes.Load()
		s.in.mu.Lock()
		held += uint64(max(0, s.in.held))
		s.in.mu.Unlock()
	}
	return in, out, held
}

// gone keeps the bytes of a session that has ended.
func (m *loadMeter) gone(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.goneIn += s.out.bytes.Load()
	m.goneOut += s.in.bytes.Load()
}

// now is the load of the last second, with the counts of this moment.
func (m *loadMeter) now() agentapi.Load {
	n := len(m.a.list())
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.load
	l.Sessions, l.Draining = n, m.a.draining.Load()
	return l
}

// Status is the agent's state as the control API shows it.
func (a *Agent) Status() agentapi.Status {
	return agentapi.Status{
		Load: a.load.now(), Instance: a.instance, Started: a.started, Version: a.cfg.Version,
		Addr: a.cfg.DataAddr, Addrs: a.cfg.addrs(), DataPorts: a.dataPorts, SessionPorts: a.cfg.SessionPorts,
		CongestionControls: congestionControls(), Transports: a.transports.names(), Warnings: a.warnings,
		MAC: a.macs[a.cfg.DataAddr], Peers: a.peersHeard(),
	}
}

// cpuTime is the processor time this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMemory is the process's resident memory.
func residentMemory() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
