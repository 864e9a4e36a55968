package network

import (
	"runtime"
	"time"
)

// cpuShare is what one switch may have of the processors' time for all that it sends, while
// there are others. Who sends more is read later, by as long as it takes: the connection
// fills, and the switch has to wait. Without it one that sends as fast as it can leaves
// others, and the programs beside the controller, only what it leaves them.
type cpuShare struct {
	used       tokenBucket
	guaranteed tokenBucket // of the part that it has whatever others do
}

const (
	// guaranteedFraction is the part of all processors that a switch has whatever others do, one in
	// so many, and ownSaved what it may take of it at once.
	guaranteedFraction = 64
	guaranteedBurst    = 20 * time.Millisecond
	// cpuFraction is one in so many of all processors. A switch has one at most: with
	// more than so many nobody waits.
	cpuFraction = 8
	// cpuBurst is what a switch may take at once.
	cpuBurst = 100 * time.Millisecond
	// maxBatchCost bounds what one batch of input counts for: one that took longer has
	// stood still, as the machine has, and that is nobody's fault.
	maxBatchCost = 5 * time.Millisecond
)

// spend takes the time of a batch from the share of a machine with so many processors,
// and returns for how long nothing must be read then. It belongs to the reader.
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

// busy reports whether the switch has used up the part that it has whatever others do.
func (b *cpuShare) busy(now time.Time, processors int) bool {
	return b.guaranteed.wait(guaranteedBurst*guaranteedFraction/time.Duration(processors), now) > 0
}

// readerSemaphore are what busy switches take one after the other: together they have half of the
// processors, so that others need not wait for them, however many they are.
type readerSemaphore chan struct{}

func newReaderSemaphore(processors int) readerSemaphore {
	return make(readerSemaphore, max(1, processors/2))
}

// readerSlot is the turn of one switch. It belongs to the reader.
type readerSlot struct {
	semaphore readerSemaphore
	taken     bool
}

// acquire waits for the turn. It is not long: who has it gives it up after a batch of input.
func (t *readerSlot) acquire() {
	t.semaphore <- struct{}{}
	t.taken = true
}

// release gives the turn up if the switch has it.
func (t *readerSlot) release() {
	if t.taken {
		t.taken = false
		<-t.semaphore
	}
}

// processors is how many the controller may use.
var processors = runtime.GOMAXPROCS(0)
