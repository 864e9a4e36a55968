package network

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// dispatcher handles the changes of switches, ports, links and hosts. Its methods keep the tables
// of links, hosts and rates consistent with each other, request repairs, and emit events.
type dispatcher struct {
	cfg         *Config
	links       *discovery.Discovery
	hosts       *hosts.Table
	rates       *stats.Table
	snapshots   *snapshots
	linkProber  *linkProber
	lostLinks   *lostLinks
	tentative   *tentativePackets
	rechecks    *rechecks
	resolver    *resolver
	repairs     *repairs
	adopted     *atomic.Bool // a switch had rules of default forwarding when it connected
	publisher   *publisher
	unprobedLog lograte.Limit
}

// switchUp announces a reconciled switch.
func (x *dispatcher) switchUp(s *Switch) {
	now := time.Now()
	x.hosts.SwitchUp(s.dpid, now)
	x.snapshots.rebuild()
	x.publisher.emit(Event{Kind: SwitchUp, At: now, Switch: s.dpid})
	for _, number := range x.hosts.Ports(s.dpid) {
		if p, ok := s.Port(number); !ok || !p.Up() {
			x.hostChanges(x.hosts.RemovePort(PortRef{Switch: s.dpid, Port: number}))
		}
	}
	for _, p := range s.Ports() {
		at := PortRef{Switch: s.dpid, Port: p.Number}
		if !p.Up() || p.Number > openflow.PortMax {
			continue
		}
		x.portUp(at, p)
		if now, ok := s.Port(p.Number); !ok || !now.Up() { // the port went down meanwhile
			x.portDown(at)
		}
	}
	for _, f := range deadPortsOf(s) {
		x.repairs.request(f)
	}
	x.repairs.request(PortRef{})
}

// switchDown removes the links of a switch. Its hosts are kept for a while, because they are most
// likely still there when the switch returns.
func (x *dispatcher) switchDown(s *Switch) {
	x.repairs.switchLeft(s.dpid, x.cfg.DiscoveryTimeout) // before repairs see that its links are gone
	x.linkChanges(x.links.SwitchDown(s.dpid))
	x.hosts.SwitchDown(s.dpid, time.Now())
	x.rates.ForgetSwitch(s.dpid)
	x.linkProber.queues.forget(s.dpid)
	x.snapshots.rebuild()
	x.publisher.emit(Event{Kind: SwitchDown, Switch: s.dpid})
	x.repairs.request(PortRef{})
}

func (x *dispatcher) portUp(at PortRef, p openflow.Port) {
	x.linkChanges(x.links.PortUp(at, p.MAC, time.Now()))
	x.publisher.emit(Event{Kind: PortUp, Switch: at.Switch, Port: at})
	x.linkProber.due.set()
}

func (x *dispatcher) portDown(at PortRef) {
	x.linkChanges(x.links.PortDown(at))
	x.rates.Forget(at)
	x.hostChanges(x.hosts.RemovePort(at))
	x.publisher.emit(Event{Kind: PortDown, Switch: at.Switch, Port: at})
	x.repairs.request(at)
}

// linkChanges handles the changes that discovery has found.
func (x *dispatcher) linkChanges(changes []discovery.Change) {
	if len(changes) == 0 {
		return
	}
	if slices.ContainsFunc(changes, func(c discovery.Change) bool { return c.Kind == discovery.LinkUp || c.Kind == discovery.LinkDown }) {
		x.snapshots.rebuild()
	}
	for _, c := range changes {
		switch c.Kind {
		case discovery.LinkUp:
			x.hostChanges(x.hosts.RemovePort(c.Link.From))
			x.hostChanges(x.hosts.RemovePort(c.Link.To))
			x.lostLinks.remove(c.Link)
			x.publisher.emit(Event{Kind: LinkUp, Link: c.Link})
			for _, at := range []PortRef{c.Link.From, c.Link.To} {
				if x.cfg.PortRoles[at] == PortAccess {
					x.publisher.linkMisplaced(c.Link, at)
				}
			}
			x.linkProber.due.set() // probe the reverse direction
			x.repairs.request(PortRef{})
		case discovery.LinkUnprobed:
			x.unprobedLog.Warn(x.cfg.Log, "probes of a link are lost: it counts as up because traffic passes", "from", c.Link.From, "to", c.Link.To)
		case discovery.LinkDown:
			x.lostLinks.add(c.Link, time.Now())
			x.publisher.emit(Event{Kind: LinkDown, Link: c.Link})
			x.repairs.request(c.Link.From)
		case discovery.LoopFound:
			x.hostChanges(x.hosts.RemovePort(c.Port))
			x.publisher.loop(LoopFound, c)
			x.repairs.request(c.Port)
		case discovery.LoopGone:
			x.publisher.loop(LoopGone, c)
			x.repairs.request(PortRef{})
		default:
			x.repairs.request(PortRef{})
		}
	}
}

// probeLoop probes two ports soon: a host that is seen at both may show that a foreign bridge
// connects them.
func (x *dispatcher) probeLoop(a, b PortRef) {
	now := time.Now()
	for _, at := range []PortRef{a, b} {
		if x.links.ProbeSoon(at, now) {
			x.linkProber.due.set()
		}
	}
}

// hostChanges handles the changes of the host table.
func (x *dispatcher) hostChanges(changes []hosts.Change) {
	for _, c := range changes {
		switch c.Kind {
		case hosts.ClaimRefused:
			x.probeLoop(c.From, c.Host.At)
			x.publisher.hostRefused(c)
			fallthrough
		case hosts.ClaimPending, hosts.ClaimAccepted:
			x.tentative.handle(c)
			continue
		}
		e := Event{Host: c.Host, Port: c.Host.At, Switch: c.Host.At.Switch}
		switch c.Kind {
		case hosts.Added:
			e.Kind = HostAdded
			if x.adopted.Load() { // the host may have moved while no controller ran
				x.repairs.request(PortRef{})
			}
		case hosts.Moved:
			e.Kind, e.From = HostMoved, c.From
			x.probeLoop(c.From, c.Host.At)
			x.repairs.request(PortRef{})
		case hosts.Removed:
			e.Kind = HostRemoved
		default:
			e.Kind = HostChanged
		}
		x.repairs.paths.set()
		x.resolver.wake(c.Host.IPs)
		x.rechecks.add(c, time.Now())
		if c.Lost.IsValid() {
			x.rechecks.announce(c.Lost, c.Host.VLAN, c.From.Switch, time.Now())
		}
		x.publisher.emit(e)
	}
}
