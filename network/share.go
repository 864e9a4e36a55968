package network

import (
	"runtime"
	"time"
)

// share is what one switch may have of the processors' time for all that it sends, while
// there are others. Who sends more is read later, by as long as it takes: the connection
// fills, and the switch has to wait. Without it one that sends as fast as it can leaves
// others, and the programs beside the controller, only what it leaves them.
type share struct{ debt }

const (
	// shareOfMachine is one in so many of all processors. A switch has one at most: with
	// more than so many nobody waits.
	shareOfMachine = 8
	// shareSaved is what a switch may take at once.
	shareSaved = 100 * time.Millisecond
	// shareBatch bounds what one batch of input counts for: one that took longer has
	// stood still, as the machine has, and that is nobody's fault.
	shareBatch = 5 * time.Millisecond
)

// spend takes the time of a batch from the share of a machine with so many processors,
// and returns for how long nothing must be read then. It belongs to the reader.
func (b *share) spend(began, ended time.Time, processors int) time.Duration {
	took := min(ended.Sub(began), shareBatch)
	if processors >= shareOfMachine {
		return 0
	}
	cost := func(d time.Duration) time.Duration { return d * shareOfMachine / time.Duration(processors) }
	b.add(cost(took), began)
	return b.beyond(cost(shareSaved), ended)
}

// processors is how many the controller may use.
var processors = runtime.GOMAXPROCS(0)
