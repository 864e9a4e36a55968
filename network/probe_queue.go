package network

import (
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// probeQueues are the ports at which probes of links have a queue of their own.
type probeQueues struct {
	mu     sync.Mutex
	queues map[PortRef]uint32
}

// SetProbeQueue has probes of the link at a port leave by one of the port's queues, which
// whoever configures them keeps for that, or with 0 by none: a probe that waits behind
// all other traffic says that the link is long, or gone, when it is only full. It may be
// called at any time, by several goroutines.
func (n *Network) SetProbeQueue(at PortRef, queue uint32) { n.prober.queues.set(at, queue) }

func (q *probeQueues) set(at PortRef, queue uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case queue == 0:
		delete(q.queues, at)
	case q.queues == nil:
		q.queues = map[PortRef]uint32{at: queue}
	default:
		q.queues[at] = queue
	}
}

// output are the actions that send a probe out of a port.
func (q *probeQueues) output(at PortRef) []openflow.Action {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.queues[at]; queue != 0 {
		return []openflow.Action{openflow.SetQueue(queue), openflow.Output(at.Port)}
	}
	return []openflow.Action{openflow.Output(at.Port)}
}

// forget drops the queues of a switch that has gone: its ports may be others when it
// comes back.
func (q *probeQueues) forget(d openflow.DatapathID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for at := range q.queues {
		if at.Switch == d {
			delete(q.queues, at)
		}
	}
}
