package classes

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
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

// The operations on classes return these errors, or a Refusal.
var (
	// ErrWithdrawn means that the class was deleted while it was being provisioned.
	ErrWithdrawn = errors.New("withdrawn before it was provisioned")
	// ErrStarting means that the classes have not been read from the store yet.
	ErrStarting = errors.New("the service is starting")
	// ErrCleanupPending means that a part of a deleted class could not be removed yet. The removal
	// is retried until it succeeds.
	ErrCleanupPending = errors.New("something of it is left, and is removed as soon as that can be done")
)

// acceptedEvent returns the attributes of the event class.accepted, which says that a class has its
// queues and rules.
func (e *entry) acceptedEvent() map[string]any {
	return map[string]any{"class": e.class.Name, "queue": e.queue, "switches": len(switchesOf(e.routes))}
}

func bookKey(name string) reserve.Key { return reserve.Key{Owner: BookOwner, ID: name} }

func ruleKey(name string) string { return "class/" + name }

// carriage describes where other services, the carriers, forward packets of a class under their own
// headers.
type carriage struct {
	// dscp marks these packets on their way between two carriers. It is zero before the first
	// connection, or if no DSCP is left.
	dscp uint8
	// asked is the time at which a carrier last asked for the class of a connection and found this
	// one. It is zero if none has asked for carryTimeout.
	asked time.Time
	ports map[place]*carriedPort
	// restored reports whether the carriage was restored from the store. It is then checked once
	// the network has settled.
	restored bool
}

// portList returns the ports at which the class has, or will have, a queue for carried packets, in
// ascending order.
func (c *carriage) portList() []place { return slices.SortedFunc(maps.Keys(c.ports), place.Compare) }

// hasMissing reports whether at any port the queue or its guaranteed rate is missing.
func (c *carriage) hasMissing() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.ports)), func(p *carriedPort) bool { return !p.ready || p.missing() != "" })
}

// carriedPort is a port by which carried packets leave a switch.
type carriedPort struct {
	// between reports whether packets on their way between two carriers leave by this port, too.
	between bool
	used    time.Time
	// ready reports whether the class has its queue at this port. lack is the reason why it has no
	// queue, or may not have one any more. short is the reason why nothing is guaranteed to the
	// queue.
	ready       bool
	lack, short string
	reported    string // the value of missing that was reported last
}

// missing returns the reason why the class has no queue or no guaranteed rate at the port, or "".
func (p *carriedPort) missing() string { return cmp.Or(p.lack, p.short) }

// overlap describes that packets of a class belong to another class as well, whose rules
// win over its own, or may.
type overlap struct {
	// all reports whether every packet of this class belongs to the other class as well.
	// same reports whether both have the same priority; each switch then chooses the class.
	all, same bool
	flow      int // index of the first flow of the class that shares packets with the other class
}
