package classes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// These are the states of a class.
const (
	// StateProvisioning means that the class is being checked, or installed in the
	// switches.
	StateProvisioning = "provisioning"
	// StateActive means that the class has its queues and rules.
	StateActive = "active"
	// StateDegraded means that the class was accepted, but a part of the network that it
	// needs is missing.
	StateDegraded = "degraded"
	// StateIneffective means that packets of the class do not reach its queue somewhere.
	StateIneffective = "ineffective"
)

// entry is a class and its state. The table's lock guards it.
type entry struct {
	class Class
	queue uint32
	placement
	// leaving lists the ports of routes that the class is being moved from. The queues there stay
	// until no rule uses them.
	leaving  []place
	accepted time.Time
	// unbooked reports whether default rates of the class are missing in the book, because the
	// capacity of a port was not known.
	unbooked bool

	state, reason string
	// unmarked is a place (a port) on the class's paths where no classifier knows the class's mark;
	// zero if there is none. suspected reports whether such a place has been observed once, but not
	// confirmed yet.
	unmarked  place
	suspected bool
	// withdraw ends provisioning; done is closed when provisioning is over.
	withdraw context.CancelCauseFunc
	done     chan struct{}

	// work is locked by the goroutine that removes the class or moves it to another route.
	work sync.Mutex

	// carriage describes where other services forward packets of the class under their own headers.
	carriage carriage

	samples map[place]*sample
	// overlaps holds the classes, by name, that share packets with this one and whose rules win, or
	// may win.
	overlaps map[string]overlap
}

// placement describes where a class is, or will be once it is installed.
type placement struct {
	// routes is nil until the class has been admitted.
	routes []Route
	// userspace tells for the switches that the class passes, or has passed, whether they forward
	// in user space and so need marks.
	userspace map[openflow.DatapathID]bool
	mark, own uint8
	// suspended reports whether the guaranteed rate does not fit, and is therefore promised to the
	// class at no port.
	suspended bool
}

// newEntry returns a class that is not in the switches yet.
func newEntry(class Class, queue uint32) *entry {
	e := &entry{
		class: class, queue: queue, state: StateDegraded, reason: "it is being placed",
		placement: placement{userspace: map[openflow.DatapathID]bool{}}, withdraw: func(error) {}, done: make(chan struct{}),
		samples: map[place]*sample{}, overlaps: map[string]overlap{},
	}
	close(e.done)
	return e
}

// held returns the ports at which the class has a queue. The lock is held.
func (e *entry) held() []place {
	ports := append(e.ports(), e.leaving...)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// ports returns the ports by which the class's packets leave switches: those on its own routes,
// and those where other services carry its packets. The lock is held.
func (e *entry) ports() []place {
	ports := append(portsOf(e.routes), e.carriage.portList()...)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// setMoveResult sets the state of a class after an attempt to move it, and reports whether
// the state has changed. The lock is held.
func (e *entry) setMoveResult(err error) (changed bool) {
	state, reason := StateActive, ""
	if err != nil {
		state, reason = StateDegraded, err.Error()
	} else if ill := e.fault(); ill != "" {
		state, reason = StateIneffective, ill
	}
	changed = e.state != state || e.reason != reason
	e.state, e.reason = state, reason
	return changed
}
