package testbed

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Others is what other programs take of the processors: a witness of who else worked on the
// machine while something was measured. Other programs are those that ran before, and what
// they have started and waited for since; the kernel's own threads are not, since they may
// work for what is measured. It belongs to one goroutine.
type Others struct {
	began time.Time
	spent map[othersKey]float64
}

// othersKey tells a process from a later one of the same number.
type othersKey struct {
	pid     int
	started uint64
}

// WatchOthers begins to watch the programs that run now; but are the numbers of processes
// that belong to what is measured.
func WatchOthers(but ...int) (*Others, error) {
	o := &Others{spent: map[othersKey]float64{}}
	own := map[int]bool{}
	for _, pid := range but {
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

// Processors is how many they have taken since the last call or WatchOthers, on average.
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

// eachProcess calls do with the seconds that a process and its children have spent that have
// ended and been waited for (utime, stime, cutime and cstime of proc_pid_stat(5)).
func eachProcess(do func(othersKey, float64)) error {
	const ticks = 100  // USER_HZ, as procfs has it
	const kthreadd = 2 // the parent of the kernel's threads
	all, err := procfs.AllProcs()
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, p := range all {
		s, err := p.Stat()
		if err != nil {
			continue // it has ended meanwhile
		}
		if s.PID == kthreadd || s.PPID == kthreadd {
			continue
		}
		do(othersKey{s.PID, s.Starttime}, float64(s.UTime+s.STime)/ticks+float64(s.CUTime+s.CSTime)/ticks)
	}
	return nil
}
