package latency

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// States of a class.
const (
	// StateProvisioning: it is being looked at, or brought into the switches.
	StateProvisioning = "provisioning"
	// StateActive: it has its queues and rules.
	StateActive = "active"
	// StateDegraded: it was accepted, and a part of the network that it needs is gone.
	StateDegraded = "degraded"
	// StateIneffective: packets of the class do not reach its queue somewhere.
	StateIneffective = "ineffective"
)

// entry is a class with what has become of it. The table's lock guards it.
type entry struct {
	class Class
	queue uint32
	placement
	// leaving are the ports of ways that it is being moved from: their queues stay until
	// no rule uses them.
	leaving  []place
	accepted time.Time
	// unbooked says that default rates are not in the book yet, because there was a port
	// whose capacity was not known.
	unbooked bool

	state, reason string
	// unmarked is where no classifier knows its mark; zero if there is no such place.
	// doubt says that it seemed so once.
	unmarked place
	doubt    bool
	// withdraw ends provisioning; done is closed when that is over.
	withdraw context.CancelCauseFunc
	done     chan struct{}

	// work is held by who removes it or moves it to another way.
	work sync.Mutex

	// carriage is where its packets go under the headers of those who carry them.
	carriage carriage

	samples map[place]*sample
	// overlaps are the classes that have packets of this one and win, by name.
	overlaps map[string]overlap
}

// placement is where a class is, or will be as soon as it is installed.
type placement struct {
	// routes is nil until the class has been admitted.
	routes []Route
	// userspace are the switches that need marks, of those that it passes or has passed.
	userspace map[openflow.DatapathID]bool
	mark, own uint8
	// yields says that its guaranteed rate does not fit, and is promised to it nowhere.
	yields bool
}

// newEntry is a class that is not in the switches yet.
func newEntry(class Class, queue uint32) *entry {
	e := &entry{
		class: class, queue: queue, state: StateDegraded, reason: "it is being placed",
		placement: placement{userspace: map[openflow.DatapathID]bool{}}, withdraw: func(error) {}, done: make(chan struct{}),
		samples: map[place]*sample{}, overlaps: map[string]overlap{},
	}
	close(e.done)
	return e
}

// held are the ports at which the class has a queue. The lock is held.
func (e *entry) held() []place {
	ports := append(e.ports(), e.leaving...)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// ports are those by which it leaves switches, by itself or carried. The lock is held.
func (e *entry) ports() []place {
	ports := append(portsOf(e.routes), e.carriage.held()...)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// follow has the state of a class follow what became of an attempt to move it, and says
// whether that is new. The lock is held.
func (e *entry) follow(err error) (changed bool) {
	state, reason := StateActive, ""
	if err != nil {
		state, reason = StateDegraded, err.Error()
	} else if ill := e.illness(); ill != "" {
		state, reason = StateIneffective, ill
	}
	changed = e.state != state || e.reason != reason
	e.state, e.reason = state, reason
	return changed
}
