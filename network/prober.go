package network

import (
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// prober finds links: it probes ports, and takes the probes that arrive.
type prober struct {
	switches *registry
	links    *discovery.Discovery
	log      *slog.Logger
	changed  func([]discovery.Change)
	// examining takes the frames of examinations, which come up as probes do.
	examining *examination
	queues    probeQueues
	due       signal // a port came up: probe it now
}

// Name implements Handler.
func (*prober) Name() string { return "discovery" }

// HandlePacketIn implements Handler.
func (x *prober) HandlePacketIn(p *PacketIn) Verdict {
	if linkprobe.Is(p.Headers.EthSrc) {
		x.examining.receive(p)
		return Stop
	}
	if p.Headers.EthType != 0x88cc {
		return Continue
	}
	if p.InPort > openflow.PortMax { // no link and no host is there
		p.Switch.pulse.loops.returned(p.Data, p.At)
		return Stop
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	changes, err := x.links.Receive(p.Data, &p.Headers, at, p.At, x.control)
	switch {
	case err == nil, err == discovery.ErrForeign: //nolint:errorlint // returned as it is
	case errors.Is(err, discovery.ErrLate):
		p.Switch.limiter.Warn(x.log, "a probe came too late to tell of its link", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	default:
		p.Switch.limiter.Warn(x.log, "probe not believed", "switch", p.Switch.dpid, "port", p.InPort, "error", err)
	}
	x.changed(changes)
	return Stop
}

// control is what is known of the connection to a switch.
func (x *prober) control(d openflow.DatapathID) discovery.Control {
	if s, ok := x.switches.get(d); ok {
		return s.pulse.rtt.control()
	}
	return discovery.Control{}
}

// counted tells discovery of a port whether it has received and sent something.
func (x *prober) counted(c stats.Sample) {
	x.links.Counted(c.Port, c.RxPackets, c.TxPackets, c.Sent)
}

// probe sends the probes that are due and returns when to call it again.
func (x *prober) probe(now time.Time) time.Time {
	due := x.links.Tick(now)
	x.changed(due.Changes)
	for _, at := range due.Count {
		if s, ok := x.switches.get(at.Switch); ok {
			s.doubted.set()
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
			s.limiter.Warn(x.log, "probing a port", "port", at, "error", err)
		}
	}
	return due.Next
}
