package network

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// wiring holds the built-in parts: links, hosts, default forwarding, rates.
type wiring struct {
	links      *discovery.Discovery
	hosts      *hosts.Table
	forwarding *forwarding
	traffic    Traffic
	snapshots  snapshots
	base       base
	repairs    repairs
	resolving  resolving
	prober     prober
	unprobed   lograte.Limit
	doubted    doubted
	amends     amends
	doctor     Doctor
	asker      *asker
	keeper     keeper
}

// historySpan is how far back the measurements of links are remembered.
const historySpan = time.Hour

// Owners of the core's own rules.
const (
	ownerCore    = "network"
	ownerForward = "forwarding"
)

func (n *Network) wire() error {
	c := &n.cfg
	misses := max(2, int(c.DiscoveryTimeout/c.DiscoveryInterval))
	n.links = discovery.New(discovery.Options{Interval: c.DiscoveryInterval, Misses: misses, Settle: c.DiscoverySettle, Window: c.LatencyWindow}, time.Now())
	n.hosts = hosts.New(hosts.Options{
		Edge: n.links.IsEdge, IgnoreVLAN: c.IgnoreVLAN, Subnets: c.Subnets, Pinned: c.Pinned,
		Confirm: c.HostConfirm, Reachable: n.switches.reachable, Keeper: n.keeper.keeps, Most: c.hostsBehind,
		Grace: c.HostGrace, Notes: c.Remember != nil,
	})
	n.hosts.Restore(c.Remembered, time.Now())
	n.prober = prober{switches: n.switches, links: n.links, log: n.log, changed: n.linkChanges, examining: &n.doctor.examining, ticks: make(chan struct{}, 1)}
	n.asker = &asker{switches: n.switches, links: n.links, hosts: n.hosts, log: n.log}
	n.resolving.asker = n.asker
	n.doubted = doubted{
		cfg: c, asker: n.asker, changed: n.hostChanges,
		held: map[*hosts.Doubt][]*Held{}, asked: map[*hosts.Doubt]*batch{}, wake: make(chan struct{}, 1),
	}
	n.amends = amends{
		asker: n.asker, keeper: &n.keeper, wake: make(chan struct{}, 1),
		announced: budget{each: announcementsEach, all: announcementsAll},
	}
	rates := stats.New(stats.Options{Interval: c.StatsInterval})
	n.snapshots.cfg, n.snapshots.switches = c, n.switches
	n.snapshots.links, n.snapshots.hosts, n.snapshots.rates = n.links, n.hosts, rates
	n.traffic = Traffic{
		interval: c.StatsInterval, began: time.Now(), rates: rates, history: stats.NewHistory(historySpan, c.StatsInterval), snapshots: &n.snapshots,
		push: pushed{switches: n.switches, rates: rates, log: n.log, talkers: stats.NewTalkers(), places: map[netip.Addr]map[uint32]PortRef{}},
	}
	n.repairs.wake, n.repairs.base = make(chan struct{}, 1), make(chan struct{}, 1)
	var err error
	if n.core, err = n.Owner(ownerCore, OwnerOptions{}); err != nil {
		return err
	}
	n.core.EverySwitch(context.Background(), "switch", Basics) // none is connected yet
	led, err := n.ledger.AddOwner(ownerForward, false)
	if err != nil {
		return err
	}
	n.ledger.Ready(led) // its rules are adopted one by one, as flows
	n.forwarding = &forwarding{
		cfg: c, switches: n.switches, links: n.links, hosts: n.hosts, repairs: &n.repairs, judge: n.doubted.judge,
		view: &n.snapshots.view, flows: forward.NewTable(), writer: ledger.NewFlowWriter(c.ForwardIdle), hash: led.Hash,
		installed: installedFlows{flows: map[forward.Key]*forward.Flow{}},
	}
	n.doctor = Doctor{
		cfg: c, log: n.log, running: &n.running, switches: n.switches, hosts: n.hosts, snapshots: &n.snapshots, core: n.core,
		asker: n.asker, resolving: &n.resolving, queues: &n.prober.queues, wanted: make(chan struct{}, 1),
	}
	n.base = base{cfg: c, switches: n.switches, core: n.core, repairs: &n.repairs, view: &n.snapshots.view}
	n.snapshots.rebuild()
	n.AddHandler(rule.ChainDiscovery, &n.prober)
	n.AddHandler(rule.ChainHosts, hostHandler{n})
	if !c.DisableForwarding {
		n.AddHandler(rule.ChainForwarding, n.forwarding)
	}
	return nil
}

// Basics are the rules that every switch needs: a way from table to table, and up for packets
// that match nothing, and for probes of links.
func Basics(d openflow.DatapathID) Program {
	up := []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}
	return Program{Rules: []Rule{
		{Switch: d, Stage: rule.StageMiss, Actions: up},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableRoute},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableService},
		{Switch: d, Stage: StageAdmit, Offset: rule.AdmitLLDP, Match: openflow.MustMatch(openflow.EthDst(discovery.Multicast), openflow.EthType(0x88cc)), Actions: up},
	}}
}

// switchUp makes a reconciled switch known.
func (n *Network) switchUp(s *Switch) {
	now := time.Now()
	n.hosts.SwitchUp(s.dpid, now)
	n.snapshots.rebuild()
	n.events.emit(Event{Kind: SwitchUp, At: now, Switch: s.dpid})
	for _, number := range n.hosts.Ports(s.dpid) {
		if p, ok := s.Port(number); !ok || !p.Up() {
			n.hostChanges(n.hosts.RemovePort(PortRef{Switch: s.dpid, Port: number}))
		}
	}
	for _, p := range s.Ports() {
		at := PortRef{Switch: s.dpid, Port: p.Number}
		if !p.Up() || p.Number > openflow.PortMax {
			continue
		}
		n.portUp(at, p)
		if now, ok := s.Port(p.Number); !ok || !now.Up() { // it went down meanwhile
			n.portDown(at)
		}
	}
	for _, f := range deadEnds(s) {
		n.repairs.request(f)
	}
	n.repairs.request(PortRef{})
}

// switchDown forgets the links of a switch. Its hosts are kept for a while: they are
// most likely still there when it comes back.
func (n *Network) switchDown(s *Switch) {
	n.linkChanges(n.links.SwitchDown(s.dpid))
	n.hosts.SwitchDown(s.dpid, time.Now())
	n.traffic.rates.ForgetSwitch(s.dpid)
	n.prober.queues.forget(s.dpid)
	n.repairs.switchLeft(s.dpid, n.cfg.DiscoveryTimeout)
	n.snapshots.rebuild()
	n.events.emit(Event{Kind: SwitchDown, Switch: s.dpid})
	n.repairs.request(PortRef{})
}

func (n *Network) portUp(at PortRef, p openflow.Port) {
	n.linkChanges(n.links.PortUp(at, p.MAC, time.Now()))
	n.events.emit(Event{Kind: PortUp, Switch: at.Switch, Port: at})
	n.prober.tick()
}

func (n *Network) portDown(at PortRef) {
	n.linkChanges(n.links.PortDown(at))
	n.traffic.rates.Forget(at)
	n.hostChanges(n.hosts.RemovePort(at))
	n.events.emit(Event{Kind: PortDown, Switch: at.Switch, Port: at})
	n.repairs.request(at)
}

// linkChanges acts on what discovery has found out.
func (n *Network) linkChanges(changes []discovery.Change) {
	if len(changes) == 0 {
		return
	}
	if slices.ContainsFunc(changes, func(c discovery.Change) bool { return c.Kind == discovery.LinkUp || c.Kind == discovery.LinkDown }) {
		n.snapshots.rebuild()
	}
	for _, c := range changes {
		switch c.Kind {
		case discovery.LinkUp:
			n.hostChanges(n.hosts.RemovePort(c.Link.From))
			n.hostChanges(n.hosts.RemovePort(c.Link.To))
			n.doctor.lost.found(c.Link)
			n.events.emit(Event{Kind: LinkUp, Link: c.Link})
			for _, at := range []PortRef{c.Link.From, c.Link.To} {
				if n.PortRole(at) == PortAccess {
					n.events.linkMisplaced(c.Link, at)
				}
			}
			n.prober.tick() // the way back
			n.repairs.request(PortRef{})
		case discovery.LinkUnprobed:
			n.unprobed.Warn(n.log, "probes of a link are lost, which stands by what it carries", "from", c.Link.From, "to", c.Link.To)
		case discovery.LinkDown:
			n.doctor.lost.note(c.Link, time.Now())
			n.events.emit(Event{Kind: LinkDown, Link: c.Link})
			n.repairs.request(c.Link.From)
		default:
			n.repairs.request(PortRef{})
		}
	}
}

// hostChanges passes on what the host table has found out.
func (n *Network) hostChanges(changes []hosts.Change) {
	for _, c := range changes {
		switch c.Kind {
		case hosts.Refused:
			n.events.hostRefused(c)
			fallthrough
		case hosts.Doubted, hosts.Believed:
			n.doubted.change(c)
			continue
		}
		e := Event{Host: c.Host, Port: c.Host.At, Switch: c.Host.At.Switch}
		switch c.Kind {
		case hosts.Added:
			e.Kind = HostAdded
			if n.forwarding.adopted.Load() { // it may have moved while no controller ran
				n.repairs.request(PortRef{})
			}
		case hosts.Moved:
			e.Kind, e.From = HostMoved, c.From
			n.repairs.request(PortRef{})
		case hosts.Removed:
			e.Kind = HostRemoved
		default:
			e.Kind = HostChanged
		}
		n.resolving.learned(c.Host.IPs)
		n.amends.later(c, time.Now())
		if c.Lost.IsValid() {
			n.amends.announce(c.Lost, c.Host.VLAN, c.From.Switch, time.Now())
		}
		n.events.emit(e)
	}
}
