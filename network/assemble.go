package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Owners of the core's own rules.
const (
	ownerCore    = "network"
	ownerForward = "forwarding"
	ownerPaths   = "multipath"
)

// assemble creates a network's parts and connects them.
func assemble(config Config) (*Network, error) {
	n := &Network{cfg: config, ledger: ledger.New(config.Generation), switches: newRegistry(), comparisons: make(chan struct{}, maxComparisons)}
	c := &n.cfg
	n.quota, n.readers = newQuota(c.Memory), newReaderSemaphore(processors)
	n.admission = newAdmission(c)
	n.publisher = newPublisher(c)
	n.owners.installer = &installer{ledger: n.ledger, switches: n.switches, timeout: c.RequestTimeout, log: c.Log}
	n.repairs.flows, n.repairs.tree, n.repairs.paths = newSignal(), newSignal(), newSignal()
	var err error
	if n.core, err = n.owners.add(ownerCore, OwnerOptions{}); err != nil {
		return nil, err
	}
	n.core.EverySwitch(context.Background(), "switch", Basics) // no switch is connected yet
	if !c.DisableForwarding {
		n.core.EverySwitch(context.Background(), "ask", forward.AskProgram)
	}
	forwardOwner, err := n.ledger.AddOwner(ownerForward, false)
	if err != nil {
		return nil, err
	}
	n.ledger.Ready(forwardOwner) // its rules are adopted one by one, as flows
	n.links = discovery.New(discovery.Options{
		Interval: c.DiscoveryInterval, Lifetime: c.DiscoveryTimeout,
		Settle: c.DiscoverySettle, Window: c.LatencyWindow,
		Keep: func(at PortRef) bool { return c.PortRoles[at] == PortUplink },
	}, time.Now())
	n.hosts = hosts.New(hosts.Options{
		Edge: n.links.IsEdge, IgnoreVLAN: c.IgnoreVLAN, Subnets: c.Subnets, Pinned: c.Pinned,
		Confirm: c.HostConfirm, Reachable: n.switches.reachable, ManagedAt: n.anchors.lookup, PortLimit: c.maxHostsBehind,
		Grace: c.HostGrace, TrackChanges: c.Remember != nil,
	})
	n.hosts.Restore(c.Remembered, time.Now())
	n.linkProber = linkProber{switches: n.switches, links: n.links, log: c.Log, onChanges: n.dispatcher.linkChanges, probes: &n.doctor.probes, due: newSignal()}
	n.hostProber = &hostProber{switches: n.switches, links: n.links, hosts: n.hosts, log: c.Log}
	n.resolver.prober = n.hostProber
	n.tentative = newTentativePackets(c, n.hostProber, n.dispatcher.hostChanges)
	n.rechecks = newRechecks(n.hostProber, &n.anchors)
	n.traffic = newTraffic(c, n.switches, &n.snapshots)
	n.snapshots = snapshots{cfg: c, switches: n.switches, links: n.links, hosts: n.hosts, rates: n.traffic.rates}
	n.forwarding = &forwarding{
		cfg: c, switches: n.switches, links: n.links, hosts: n.hosts, anchors: &n.anchors, repairs: &n.repairs, filter: n.tentative.filter,
		view: &n.snapshots.view, flows: forward.NewTable(), writer: ledger.NewFlowWriter(c.ForwardIdle), hash: forwardOwner.Hash,
		installed: installedFlows{flows: map[forward.Key]*forward.Flow{}},
	}
	n.tree = broadcastTree{cfg: c, switches: n.switches, core: n.core, repairs: &n.repairs, view: &n.snapshots.view}
	paths, err := n.owners.add(ownerPaths, OwnerOptions{})
	if err != nil {
		return nil, err
	}
	n.proactive = newProactive(c, &n.tree, paths, n.hosts, &n.snapshots.topo, n.repairs.paths)
	n.doctor = Doctor{
		cfg: c, running: &n.running, switches: n.switches, hosts: n.hosts, snapshots: &n.snapshots, core: n.core,
		hostProber: n.hostProber, resolver: &n.resolver, queues: &n.linkProber.queues, wanted: make(chan struct{}, 1),
	}
	n.dispatcher = dispatcher{
		cfg: c, links: n.links, hosts: n.hosts, rates: n.traffic.rates, snapshots: &n.snapshots, linkProber: &n.linkProber, lostLinks: &n.doctor.lostLinks,
		tentative: &n.tentative, rechecks: &n.rechecks, resolver: &n.resolver, repairs: &n.repairs, adopted: &n.forwarding.adopted, publisher: n.publisher,
	}
	n.snapshots.rebuild()
	n.AddHandler(rule.ChainDiscovery, &n.linkProber)
	n.AddHandler(rule.ChainHosts, &learner{hosts: n.hosts, onChanges: n.dispatcher.hostChanges, probes: &n.doctor.probes})
	if !c.DisableForwarding {
		n.AddHandler(rule.ChainForwarding, n.forwarding)
	}
	return n, nil
}

// Basics returns the rules that every switch needs: they lead from table to table, and send
// packets that match nothing, and probes of links, to the controller.
func Basics(d openflow.DatapathID) Program {
	up := []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}
	return Program{Rules: []Rule{
		{Switch: d, Stage: rule.StageMiss, Actions: up},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableRoute},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableService},
		{Switch: d, Stage: StageAdmit, Offset: rule.AdmitLLDP, Match: openflow.MustMatch(openflow.EthDst(discovery.Multicast), openflow.EthType(0x88cc)), Actions: up},
	}}
}
