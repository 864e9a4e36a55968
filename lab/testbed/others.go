package testbed

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Others measures how much processor time other programs use, which shows whether they have
// disturbed a measurement. Other programs are those that ran before, and what they have started and
// waited for since. Threads of the kernel do not count, because they may work for what is measured.
// Others belongs to one goroutine.
type Others struct {
	began time.Time
	spent map[othersKey]float64
}

// othersKey distinguishes a process from a later one with the same ID.
type othersKey struct {
	pid     int
	started uint64
}

// WatchOthers starts to watch the programs that run now. It leaves out the given processes, which
// belong to what is measured.
func WatchOthers(except ...int) (*Others, error) {
	o := &Others{spent: map[othersKey]float64{}}
	own := map[int]bool{}
	for _, pid := range except {
		own[pid] = true
	}
	err := eachProcess(func(k othersKey, spent float64) {
		if !own[k.pid] {
			o.spent[k] = spent
		}
	})
	o.began = time.Now()
	return o, err
}

// Processors returns how many processors the other programs have used on average since the last
// call of Processors or WatchOthers.
func (o *Others) Processors() (float64, error) {
	var sum float64
	err := eachProcess(func(k othersKey, spent float64) {
		if before, watched := o.spent[k]; watched {
			sum += spent - before
			o.spent[k] = spent
		}
	})
	now := time.Now()
	taken := sum / now.Sub(o.began).Seconds()
	o.began = now
	return taken, err
}

// eachProcess calls do with the CPU time in seconds of each process, including that of its children
// that have ended and been waited for (utime, stime, cutime and cstime of proc_pid_stat(5)).
func eachProcess(do func(othersKey, float64)) error {
	const ticks = 100  // is USER_HZ, the unit of procfs
	const kthreadd = 2 // the parent of the kernel's threads
	all, err := procfs.AllProcs()
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, p := range all {
		s, err := p.Stat()
		if err != nil {
			continue // The process has ended meanwhile.
		}
		if s.PID == kthreadd || s.PPID == kthreadd {
			continue
		}
		do(othersKey{s.PID, s.Starttime}, float64(s.UTime+s.STime)/ticks+float64(s.CUTime+s.CSTime)/ticks)
	}
	return nil
}
