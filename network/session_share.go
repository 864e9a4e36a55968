package network

import (
	"runtime"
	"time"
)

// share is what one switch may have of the processors' time for all that it sends, while
// there are others. Who sends more is read later, by as long as it takes: the connection
// fills, and the switch has to wait. Without it one that sends as fast as it can leaves
// others, and the programs beside the controller, only what it leaves them.
type share struct {
	used debt
	own  debt // of the part that it has whatever others do
}

const (
	// ownOfMachine is the part of all processors that a switch has whatever others do, one in
	// so many, and ownSaved what it may take of it at once.
	ownOfMachine = 64
	ownSaved     = 20 * time.Millisecond
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
	b.own.add(took*ownOfMachine/time.Duration(processors), began)
	if processors >= shareOfMachine {
		return 0
	}
	cost := func(d time.Duration) time.Duration { return d * shareOfMachine / time.Duration(processors) }
	b.used.add(cost(took), began)
	return b.used.beyond(cost(shareSaved), ended)
}

// busy reports whether the switch has used up the part that it has whatever others do.
func (b *share) busy(now time.Time, processors int) bool {
	return b.own.beyond(ownSaved*ownOfMachine/time.Duration(processors), now) > 0
}

// turns are what busy switches take one after the other: together they have half of the
// processors, so that others need not wait for them, however many they are.
type turns chan struct{}

func newTurns(processors int) turns { return make(turns, max(1, processors/2)) }

// turn is the turn of one switch. It belongs to the reader.
type turn struct {
	of    turns
	taken bool
}

// take waits for the turn. It is not long: who has it gives it up after a batch of input.
func (t *turn) take() {
	t.of <- struct{}{}
	t.taken = true
}

// leave gives the turn up if the switch has it.
func (t *turn) leave() {
	if t.taken {
		t.taken = false
		<-t.of
	}
}

// processors is how many the controller may use.
var processors = runtime.GOMAXPROCS(0)
