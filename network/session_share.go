package network

import (
	"runtime"
	"time"
)

// cpuShare limits the processor time that one switch's input may take while other switches are
// connected. A switch that sends more is read later: its connection fills, and the switch has to
// wait. Without the limit a switch that sends as fast as it can would leave the others, and other
// programs of the machine, only what it does not use.
type cpuShare struct {
	used       tokenBucket
	guaranteed tokenBucket // of the part that the switch has regardless of all others
}

const (
	// guaranteedFraction is the inverse of the part of all processors that a switch may use
	// regardless of all others, and guaranteedBurst how much of it the switch may use at once.
	guaranteedFraction = 64
	guaranteedBurst    = 20 * time.Millisecond
	// cpuFraction is the inverse of a switch's part of all processors. A switch uses one processor
	// at most, so with this many processors or more no switch waits.
	cpuFraction = 8
	// cpuBurst is the processor time that a switch may use at once.
	cpuBurst = 100 * time.Millisecond
	// maxBatchCost is the most that one batch of input is charged. If a batch took longer, the
	// machine was stalled, which is no fault of the switch.
	maxBatchCost = 5 * time.Millisecond
)

// spend charges the time of a batch, and returns how long the switch must not be read afterwards.
// Only the reader's goroutine calls it.
func (b *cpuShare) spend(began, ended time.Time, processors int) time.Duration {
	took := min(ended.Sub(began), maxBatchCost)
	b.guaranteed.consume(took*guaranteedFraction/time.Duration(processors), began)
	if processors >= cpuFraction {
		return 0
	}
	cost := func(d time.Duration) time.Duration { return d * cpuFraction / time.Duration(processors) }
	b.used.consume(cost(took), began)
	return b.used.wait(cost(cpuBurst), ended)
}

// busy reports whether the switch has used up its guaranteed part.
func (b *cpuShare) busy(now time.Time, processors int) bool {
	return b.guaranteed.wait(guaranteedBurst*guaranteedFraction/time.Duration(processors), now) > 0
}

// readerSemaphore is shared by the readers of busy switches. Together they get half of the
// processors, so that the others need not wait for them, however many there are.
type readerSemaphore chan struct{}

func newReaderSemaphore(processors int) readerSemaphore {
	return make(readerSemaphore, max(1, processors/2))
}

// readerSlot is one switch's use of the semaphore. Only the reader's goroutine uses it.
type readerSlot struct {
	semaphore readerSemaphore
	taken     bool
}

// acquire waits for the semaphore. The wait is short: each holder releases it after a batch of
// input.
func (t *readerSlot) acquire() {
	t.semaphore <- struct{}{}
	t.taken = true
}

// release releases the semaphore if the switch holds it.
func (t *readerSlot) release() {
	if t.taken {
		t.taken = false
		<-t.semaphore
	}
}

// processors is the number of processors that the controller may use.
var processors = runtime.GOMAXPROCS(0)
