package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/qos/mark"
)

// DatabaseOwner is the name that rows of this service bear in the databases.
const DatabaseOwner = "sluice-qos"

// Databases are those of the switches; an *ovsdb.Owner.
type Databases interface {
	Declare(ovsdb.Want)
	Touch()
	Ensure(ctx context.Context, dpid uint64, ports []uint32) error
	Bridge(dpid uint64) (ovsdb.Bridge, <-chan struct{})
	WaitBridge(ctx context.Context, dpid uint64) (ovsdb.Bridge, error)
}

// inDatabase says what the database of a switch shall hold, by what it holds.
func (s *Service) inDatabase(dpid uint64, now ovsdb.Bridge) (ovsdb.Wanted, error) {
	d := openflow.DatapathID(dpid)
	want, known := s.wanted(d, now)
	if !known {
		return ovsdb.Wanted{}, fmt.Errorf("switch %v is not connected", d)
	}
	s.probesBy(d, now)
	withhold(want, now)
	return ovsdb.Wanted{Queues: want}, nil
}

// ours is the discipline that a port has from us, nil if it has none.
func ours(b ovsdb.Bridge, port uint32) *ovsdb.QoS {
	if p, _ := b.Port(port); p.QoS != nil && p.QoS.Owner() == DatabaseOwner {
		return p.QoS
	}
	return nil
}

// userspace says whether a switch forwards in user space; an error while that is not
// known.
func (s *Service) userspace(ctx context.Context, d openflow.DatapathID) (bool, error) {
	b, err := s.databases.WaitBridge(ctx, uint64(d))
	return b.Datapath == ovsdb.Userspace, err
}

// bySwitch groups ports.
func bySwitch(ports []place) map[openflow.DatapathID][]uint32 {
	out := map[openflow.DatapathID][]uint32{}
	for _, p := range ports {
		out[p.Switch] = append(out[p.Switch], p.Port)
	}
	return out
}

// ensureQueues returns when the queues of all switches are as wanted, at least at the
// ports that are named.
func (s *Service) ensureQueues(ctx context.Context, ports map[openflow.DatapathID][]uint32) error {
	errs := make([]error, len(ports))
	var wg sync.WaitGroup
	for i, d := range slices.Sorted(maps.Keys(ports)) {
		wg.Go(func() {
			errs[i] = s.databases.Ensure(ctx, uint64(d), ports[d])
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// probesBy tells the network at which ports of a bridge probes have a queue of their own.
func (s *Service) probesBy(d openflow.DatapathID, b ovsdb.Bridge) {
	for _, p := range b.Ports {
		queue := uint32(0)
		if q := ours(b, p.Number); q != nil && slices.ContainsFunc(q.Queues, func(q ovsdb.Queue) bool { return q.ID == probeQueue }) {
			queue = probeQueue
		}
		s.net.SetProbeQueue(portRef(d, p.Number), queue)
	}
}

// wanted are the disciplines of a switch, false while it is not connected. now is what its
// database holds: the bucket of a port that is down and tells no speed stays as it is.
func (s *Service) wanted(d openflow.DatapathID, now ovsdb.Bridge) (map[uint32]ovsdb.Root, bool) {
	ports, ok := s.net.PortNumbers(d)
	if !ok {
		return nil, false
	}
	capacities := map[uint32]uint64{}
	for _, number := range ports {
		capacity := s.net.Capacity(portRef(d, number))
		if q := ours(now, number); q != nil && capacity == 0 {
			capacity = q.Rate
		}
		capacities[number] = capacity
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	leaves := map[uint32][]ovsdb.Queue{}
	for _, c := range s.sortedClasses() {
		if c.routes == nil {
			continue
		}
		for _, at := range c.held() {
			if at.Switch != d {
				continue
			}
			var marked *uint8
			if c.userspace[d] && c.mark != 0 {
				m := c.mark
				marked = &m
			}
			q := leaf(&c.class, c.queue, s.ratesOf(c, at, capacities[at.Port]), marked, c.own)
			if p := c.carriage.ports[at]; marked != nil && p != nil && p.between && c.carriage.dscp != 0 {
				q.Tags[mark.TagKept] = strconv.Itoa(int(c.carriage.dscp))
			}
			leaves[at.Port] = append(leaves[at.Port], q)
		}
	}
	if !s.settings.OnConnect {
		maps.DeleteFunc(capacities, func(port uint32, _ uint64) bool { return len(leaves[port]) == 0 })
	}
	return roots(capacities, leaves), true
}
