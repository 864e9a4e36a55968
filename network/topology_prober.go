package network

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// linkProber finds links: it probes ports, and takes the probes that arrive.
type linkProber struct {
	switches  *registry
	links     *discovery.Discovery
	log       *slog.Logger
	onChanges func([]discovery.Change)
	// probes takes the frames of examinations, which come up as probes do.
	probes *probeReceiver
	queues probeQueues
	due    signal // a port came up: probe it now
}

// Name implements Handler.
func (*linkProber) Name() string { return "discovery" }

// HandlePacketIn implements Handler.
func (x *linkProber) HandlePacketIn(p *PacketIn) Verdict {
	if linkprobe.Is(p.Headers.EthSrc) {
		x.probes.receive(p)
		return Stop
	}
	if p.Headers.EthType != 0x88cc {
		return Continue
	}
	if p.InPort > openflow.PortMax { // no link and no host is there
		p.Switch.keepalive.loopback.receive(p.Data, p.At)
		return Stop
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	changes, err := x.links.Receive(p.Data, &p.Headers, at, p.At, x.control)
	switch {
	case err == nil, err == discovery.ErrForeign: //nolint:errorlint // returned as it is
	case errors.Is(err, discovery.ErrLate):
		p.Switch.logLimiter.Warn(x.log, "a probe came too late to tell of its link", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	default:
		p.Switch.logLimiter.Warn(x.log, "probe not believed", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	}
	x.onChanges(changes)
	return Stop
}

// control is what is known of the connection to a switch.
func (x *linkProber) control(d openflow.DatapathID) discovery.Control {
	if s, ok := x.switches.get(d); ok {
		return s.keepalive.rtt.control()
	}
	return discovery.Control{}
}

// observe tells discovery of a port whether it has received and sent something.
func (x *linkProber) observe(c stats.Sample) {
	x.links.Counted(c.Port, c.RxPackets, c.TxPackets, c.Sent)
}

// probe sends the probes that are due and returns when to call it again.
func (x *linkProber) probe(now time.Time) time.Time {
	due := x.links.Tick(now)
	x.onChanges(due.Changes)
	for _, at := range due.Count {
		if s, ok := x.switches.get(at.Switch); ok {
			s.countersWanted.set()
		}
	}
	for _, at := range due.Probe {
		s, ok := x.switches.get(at.Switch)
		if !ok {
			continue
		}
		frame := x.links.Probe(nil, at, time.Now())
		if frame == nil {
			continue
		}
		if err := s.PacketOut(openflow.PortController, x.queues.output(at), frame); err != nil {
			s.logLimiter.Warn(x.log, "probing a port", "port", at, "error", err)
		}
	}
	return due.Next
}

// probeQueues are the ports at which probes of links have a queue of their own.
type probeQueues struct {
	mu     sync.Mutex
	queues map[PortRef]uint32
}

// SetProbeQueue has probes of the link at a port leave by one of the port's queues, which
// whoever configures them keeps for that, or with 0 by none: a probe that waits behind
// all other traffic says that the link is long, or gone, when it is only full. It may be
// called at any time, by several goroutines.
func (n *Network) SetProbeQueue(at PortRef, queue uint32) { n.linkProber.queues.set(at, queue) }

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
