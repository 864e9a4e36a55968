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

// assemble makes a network of its parts, which hold each other as far as they need to.
func assemble(config Config) (*Network, error) {
	n := &Network{cfg: config, ledger: ledger.New(config.Generation), switches: newRegistry()}
	c := &n.cfg
	n.quota, n.turns = newQuota(c.Memory), newTurns(processors)
	n.admission = newAdmission(c)
	n.events = newEvents(c)
	n.owners.in = &installer{ledger: n.ledger, switches: n.switches, timeout: c.RequestTimeout, log: c.Log}
	n.repairs.wake, n.repairs.base, n.repairs.paths = newSignal(), newSignal(), newSignal()
	var err error
	if n.core, err = n.owners.add(ownerCore, OwnerOptions{}); err != nil {
		return nil, err
	}
	n.core.EverySwitch(context.Background(), "switch", Basics) // none is connected yet
	if !c.DisableForwarding {
		n.core.EverySwitch(context.Background(), "ask", forward.AskProgram)
	}
	led, err := n.ledger.AddOwner(ownerForward, false)
	if err != nil {
		return nil, err
	}
	n.ledger.Ready(led) // its rules are adopted one by one, as flows
	n.links = discovery.New(discovery.Options{
		Interval: c.DiscoveryInterval, Lifetime: c.DiscoveryTimeout,
		Settle: c.DiscoverySettle, Window: c.LatencyWindow,
	}, time.Now())
	n.hosts = hosts.New(hosts.Options{
		Edge: n.links.IsEdge, IgnoreVLAN: c.IgnoreVLAN, Subnets: c.Subnets, Pinned: c.Pinned,
		Confirm: c.HostConfirm, Reachable: n.switches.reachable, Keeper: n.anchors.keeps, Most: c.hostsBehind,
		Grace: c.HostGrace, Notes: c.Remember != nil,
	})
	n.hosts.Restore(c.Remembered, time.Now())
	n.prober = prober{switches: n.switches, links: n.links, log: c.Log, changed: n.news.linkChanges, examining: &n.doctor.examining, due: newSignal()}
	n.asker = &asker{switches: n.switches, links: n.links, hosts: n.hosts, log: c.Log}
	n.resolving.asker = n.asker
	n.doubted = newDoubted(c, n.asker, n.news.hostChanges)
	n.amends = newAmends(n.asker, &n.anchors)
	n.traffic = newTraffic(c, n.switches, &n.snapshots)
	n.snapshots = snapshots{cfg: c, switches: n.switches, links: n.links, hosts: n.hosts, rates: n.traffic.rates}
	n.forwarding = &forwarding{
		cfg: c, switches: n.switches, links: n.links, hosts: n.hosts, anchors: &n.anchors, repairs: &n.repairs, judge: n.doubted.judge,
		view: &n.snapshots.view, flows: forward.NewTable(), writer: ledger.NewFlowWriter(c.ForwardIdle), hash: led.Hash,
		installed: installedFlows{flows: map[forward.Key]*forward.Flow{}},
	}
	n.base = base{cfg: c, switches: n.switches, core: n.core, repairs: &n.repairs, view: &n.snapshots.view}
	paths, err := n.owners.add(ownerPaths, OwnerOptions{})
	if err != nil {
		return nil, err
	}
	n.proactive = newProactive(c, &n.base, paths, n.hosts, &n.snapshots.topo, n.repairs.paths)
	n.doctor = Doctor{
		cfg: c, running: &n.running, switches: n.switches, hosts: n.hosts, snapshots: &n.snapshots, core: n.core,
		asker: n.asker, resolving: &n.resolving, queues: &n.prober.queues, wanted: make(chan struct{}, 1),
	}
	n.news = news{
		cfg: c, links: n.links, hosts: n.hosts, rates: n.traffic.rates, snapshots: &n.snapshots, prober: &n.prober, lost: &n.doctor.lost,
		doubted: &n.doubted, amends: &n.amends, resolving: &n.resolving, repairs: &n.repairs, adopted: &n.forwarding.adopted, events: n.events,
	}
	n.snapshots.rebuild()
	n.AddHandler(rule.ChainDiscovery, &n.prober)
	n.AddHandler(rule.ChainHosts, &learner{hosts: n.hosts, changed: n.news.hostChanges, examining: &n.doctor.examining})
	if !c.DisableForwarding {
		n.AddHandler(rule.ChainForwarding, n.forwarding)
	}
	return n, nil
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
