package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// DatabaseOwner is the owner of this service's rows in the databases.
const DatabaseOwner = "sluice-qos"

// Databases gives access to the databases of the switches, as an *ovsdb.Owner does.
type Databases interface {
	Declare(ovsdb.Want)
	Touch()
	Ensure(ctx context.Context, dpid uint64, ports []uint32) error
	Bridge(dpid uint64) (ovsdb.Bridge, <-chan struct{})
	WaitBridge(ctx context.Context, dpid uint64) (ovsdb.Bridge, error)
}

// queues manages the queues of the classes in the databases of the switches.
type queues struct {
	Options
	classes *table
	plan    *planner
}

// desiredState returns the state that the database of a switch should have, given its present
// state. It also informs the network at which ports probes have a queue of their own.
func (q *queues) desiredState(dpid uint64, now ovsdb.Bridge) (ovsdb.Wanted, error) {
	d := openflow.DatapathID(dpid)
	want, known := q.desiredRoots(d, now)
	if !known {
		return ovsdb.Wanted{}, fmt.Errorf("switch %v is not connected", d)
	}
	for _, p := range now.Ports {
		probes := uint32(0)
		if queueOf(now, p.Number, probeQueue) != nil {
			probes = probeQueue
		}
		q.Network.SetProbeQueue(portRef(d, p.Number), probes)
	}
	withholdMarks(want, now)
	return ovsdb.Wanted{Queues: want}, nil
}

// ownQoS returns this service's QoS row of a port; nil if there is none.
func ownQoS(b ovsdb.Bridge, port uint32) *ovsdb.QoS {
	if p, _ := b.Port(port); p.QoS != nil && p.QoS.Owner() == DatabaseOwner {
		return p.QoS
	}
	return nil
}

// queueOf returns this service's queue of the given number at a port; nil if there is none.
func queueOf(b ovsdb.Bridge, port, queue uint32) *ovsdb.Queue {
	if has := ownQoS(b, port); has != nil {
		if i := slices.IndexFunc(has.Queues, func(x ovsdb.Queue) bool { return x.ID == queue }); i >= 0 {
			return &has.Queues[i]
		}
	}
	return nil
}

// desiredRoots returns the desired queueing disciplines of a switch, by port, or false while the
// switch is not connected. now is the present state of its database: the token bucket of a port
// that is down and reports no speed keeps its rate.
func (q *queues) desiredRoots(d openflow.DatapathID, now ovsdb.Bridge) (map[uint32]ovsdb.Root, bool) {
	ports, ok := q.Network.PortNumbers(d)
	if !ok {
		return nil, false
	}
	capacities := map[uint32]uint64{}
	for _, number := range ports {
		capacity := q.Network.Capacity(portRef(d, number))
		if has := ownQoS(now, number); has != nil && capacity == 0 {
			capacity = has.Rate
		}
		capacities[number] = capacity
	}
	leaves := map[uint32][]ovsdb.Queue{}
	q.classes.mu.Lock()
	defer q.classes.mu.Unlock()
	for _, e := range q.classes.sorted() {
		for _, at := range e.held() {
			if at.Switch == d && e.routes != nil {
				leaves[at.Port] = append(leaves[at.Port], e.leaf(at, q.plan.currentRates(e, at, capacities[at.Port])))
			}
		}
	}
	if !q.OnConnect {
		maps.DeleteFunc(capacities, func(port uint32, _ uint64) bool { return len(leaves[port]) == 0 })
	}
	return roots(capacities, leaves), true
}

// leaf returns the queue of a class at one port, as it should be in the database. The lock is held.
func (e *entry) leaf(at place, r rates) ovsdb.Queue {
	x := ovsdb.Queue{ID: e.queue, MinRate: r.min, MaxRate: r.max, Priority: e.class.Priority, Tags: map[string]string{TagClass: e.class.Name}}
	if !e.userspace[at.Switch] || e.mark == 0 {
		return x
	}
	m := e.mark
	x.Mark = &m
	maps.Copy(x.Tags, mark.Entry{Queue: e.queue, Mark: m, Own: e.own}.Tags())
	if p := e.carriage.ports[at]; p != nil && p.between && e.carriage.dscp != 0 {
		x.Tags[mark.TagKept] = strconv.Itoa(int(e.carriage.dscp))
	}
	return x
}

// withholdMarks removes from queues the marks that the classifier of a bridge has not confirmed,
// because such a mark would not be removed from packets before they leave the switch.
func withholdMarks(want map[uint32]ovsdb.Root, now ovsdb.Bridge) {
	for number, root := range want {
		known := ""
		if has := ownQoS(now, number); has != nil {
			known = has.Tags[mark.TagKnown]
		}
		for i, x := range root.Queues {
			e, ok, err := mark.Read(x.ID, x.Tags)
			if !ok || err != nil || !mark.Contains(known, e) {
				root.Queues[i].Mark = nil
			}
		}
	}
}

// userspace reports whether a switch forwards in user space. It returns an error while that
// is not known.
func (q *queues) userspace(ctx context.Context, d openflow.DatapathID) (bool, error) {
	b, err := q.Databases.WaitBridge(ctx, uint64(d))
	return b.Datapath == ovsdb.Userspace, err
}

// bySwitch groups ports by switch.
func bySwitch(ports []place) map[openflow.DatapathID][]uint32 {
	out := map[openflow.DatapathID][]uint32{}
	for _, p := range ports {
		out[p.Switch] = append(out[p.Switch], p.Port)
	}
	return out
}

// ensure waits until the given switches have the queues that were desired at the time of
// the call. It ignores errors at ports other than the given ones.
func (q *queues) ensure(ctx context.Context, ports map[openflow.DatapathID][]uint32) error {
	errs := make([]error, len(ports))
	var wg sync.WaitGroup
	for i, d := range slices.Sorted(maps.Keys(ports)) {
		wg.Go(func() { errs[i] = q.Databases.Ensure(ctx, uint64(d), ports[d]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// markTimeout is how long a class that is being provisioned waits for classifiers to learn
// its mark.
const markTimeout = 2 * time.Second

// awaitMarks waits, up to markTimeout, until a class's packets are marked wherever that is
// needed.
func (q *queues) awaitMarks(ctx context.Context, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	for {
		q.classes.mu.Lock()
		_, changed := q.unmarkedAt(e)
		q.classes.mu.Unlock()
		if changed == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// unmarkedAt returns the first place of a class where its packets need a mark and have none,
// according to the database. The channel is closed when that may have changed; it is nil if there
// is no such place. If nothing is known about a place, its state counts as unchanged. The lock is
// held.
func (q *queues) unmarkedAt(e *entry) (place, <-chan struct{}) {
	for _, r := range e.routes {
		for _, h := range r.Hops {
			at := portRef(h.Switch, h.Out)
			if !e.userspace[h.Switch] {
				continue
			}
			b, changed := q.Databases.Bridge(uint64(at.Switch))
			x := queueOf(b, at.Port, e.queue)
			if x != nil && x.Mark == nil || x == nil && e.unmarked == at {
				return at, changed
			}
		}
	}
	return place{}, nil
}

// isKnownBetween reports whether the classifier at a port has confirmed that it recognises
// packets between carriers by the class's DSCP. The lock is held.
func (q *queues) isKnownBetween(e *entry, at place) bool {
	b, _ := q.Databases.Bridge(uint64(at.Switch))
	has := ownQoS(b, at.Port)
	return has != nil && mark.Contains(has.Tags[mark.TagKnown], mark.Kept(e.queue, e.carriage.dscp))
}
