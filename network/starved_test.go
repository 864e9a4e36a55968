//go:build !race

package network_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine sees whether programs that have something to do get a processor for it: the
// witness of what is measured by programs. One thread works a little again and again,
// and compares the time that takes with the processor time that it got.
type machine struct {
	end func()

	mu           sync.Mutex
	worked, took time.Duration
}

const (
	// workEvery is how often the thread works, workFor how long.
	workEvery = 50 * time.Millisecond
	workFor   = 2 * time.Millisecond
	// starvedShare is the share of the time without a processor from which on counters
	// are read too late to tell anything. What the lab itself takes is about half.
	starvedShare = 0.6
)

// watchMachine watches until end is called, or the test ends.
func watchMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	m.end = sync.OnceFunc(func() { close(stop); watching.Wait() })
	t.Cleanup(m.end)
	watching.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tick := time.NewTicker(workEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			began, before := time.Now(), processorTime(t)
			for processorTime(t)-before < workFor {
			}
			m.mu.Lock()
			m.worked += processorTime(t) - before
			m.took += time.Since(began)
			m.mu.Unlock()
		}
	})
	return m
}

// processorTime is how long the calling thread has had a processor.
func processorTime(t *testing.T) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Error(err)
	}
	return time.Duration(at.Nano())
}

// starved is the share of the time in which there was work and no processor.
func (m *machine) starved() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took == 0 {
		return 0
	}
	return 1 - float64(m.worked)/float64(m.took)
}

// stretch is by how much work took longer than on a machine that has nothing else to do.
func (m *machine) stretch() float64 { return 1 / (1 - m.starved()) }

// wantTruth ends a test that compares counters which were read too late.
func (m *machine) wantTruth(t *testing.T) {
	t.Helper()
	m.end()
	t.Logf("programs were without a processor for %.0f %% of the time that they wanted one", 100*m.starved())
	if m.starved() > starvedShare {
		t.Skipf("NOT MEASURED: the machine is busy with something else, and gives no truth to compare with")
	}
}
