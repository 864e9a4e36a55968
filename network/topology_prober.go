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

// linkProber discovers links: it sends probes out of ports, and handles the probes that arrive.
type linkProber struct {
	switches  *registry
	links     *discovery.Discovery
	log       *slog.Logger
	onChanges func([]discovery.Change)
	// probes receives the frames of examinations, which reach the controller like link probes.
	probes *probeReceiver
	queues probeQueues
	due    signal // a port came up and is to be probed now
}

// Name implements Handler.
func (*linkProber) Name() string { return "discovery" }

// HandlePacketIn implements Handler.
func (x *linkProber) HandlePacketIn(p *PacketIn) Verdict {
	if linkprobe.Is(p.Headers.EthSrc) {
		x.probes.receive(p)
		return Stop
	}
	if p.Headers.EthDst == discovery.LoopMulticast && p.Headers.EthType == discovery.LoopType {
		x.receiveLoop(p)
		return Stop
	}
	if p.Headers.EthType != 0x88cc {
		return Continue
	}
	if p.InPort > openflow.PortMax { // the packet was looped back to the controller's port
		p.Switch.keepalive.loopback.receive(p.Data, p.At)
		return Stop
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	changes, err := x.links.Receive(p.Data, &p.Headers, at, p.At, x.control)
	switch {
	case err == nil, err == discovery.ErrForeign: //nolint:errorlint // discovery returns it unwrapped
	case errors.Is(err, discovery.ErrLate):
		p.Switch.logLimiter.Warn(x.log, "a probe arrived too late to show its link", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	default:
		p.Switch.logLimiter.Warn(x.log, "probe refused", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	}
	x.onChanges(changes)
	return Stop
}

// receiveLoop handles a probe of a loop.
func (x *linkProber) receiveLoop(p *PacketIn) {
	if p.InPort > openflow.PortMax {
		return
	}
	changes, err := x.links.ReceiveLoop(p.Data[p.Headers.L3:], PortRef{Switch: p.Switch.dpid, Port: p.InPort}, p.At)
	if err != nil && err != discovery.ErrForeign { //nolint:errorlint // discovery returns it unwrapped
		p.Switch.logLimiter.Warn(x.log, "probe of a loop refused", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	}
	x.onChanges(changes)
}

// control returns the round-trip times of the control connection to a switch.
func (x *linkProber) control(d openflow.DatapathID) discovery.Control {
	if s, ok := x.switches.get(d); ok {
		return s.keepalive.rtt.control()
	}
	return discovery.Control{}
}

// observe passes a port's counters to discovery, which learns whether the port has received and
// sent packets.
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
		x.send(at, x.links.Probe)
	}
	for _, at := range due.LoopProbe {
		x.send(at, x.links.LoopProbe)
	}
	return due.Next
}

// send sends the probe that make returns out of a port.
func (x *linkProber) send(at PortRef, make func([]byte, PortRef, time.Time) []byte) {
	s, ok := x.switches.get(at.Switch)
	if !ok {
		return
	}
	frame := make(nil, at, time.Now())
	if frame == nil {
		return
	}
	if err := s.PacketOut(openflow.PortController, x.queues.output(at), frame); err != nil {
		s.logLimiter.Warn(x.log, "probing a port", "port", at, "error", err)
	}
}

// probeQueues holds the ports where probes of links use a queue of their own.
type probeQueues struct {
	mu     sync.Mutex
	queues map[PortRef]uint32
}

// SetProbeQueue makes probes of the link at a port use one of the port's queues, or none if queue
// is 0. The queue should be reserved for probes: a probe that waits behind other traffic makes a
// full link look long or dead. SetProbeQueue may be called at any time, by several goroutines.
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

// output returns the actions that send a probe out of a port.
func (q *probeQueues) output(at PortRef) []openflow.Action {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.queues[at]; queue != 0 {
		return []openflow.Action{openflow.SetQueue(queue), openflow.Output(at.Port)}
	}
	return []openflow.Action{openflow.Output(at.Port)}
}

// forget drops the queues of a switch that has disconnected, because its ports may be different
// when it returns.
func (q *probeQueues) forget(d openflow.DatapathID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for at := range q.queues {
		if at.Switch == d {
			delete(q.queues, at)
		}
	}
}
