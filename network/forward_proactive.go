package network

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/multipath"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// proactive maintains rules by destination on all switches: rules that match a packet's destination
// only, so that switches forward ordinary packets without the controller.
type proactive struct {
	cfg     *Config
	tree    *broadcastTree
	owner   *Owner
	hosts   *hosts.Table
	topo    *atomic.Pointer[topology.Topology]
	wake    signal
	fullLog lograte.Limit

	planner      *multipath.Planner
	links        linkMemory
	tables       map[openflow.DatapathID]pathTable // installed on the switches
	traits       map[openflow.DatapathID]*pathTraits
	overdue      map[openflow.DatapathID]*pathsChange
	paused       map[openflow.DatapathID]time.Time // the time until which paths avoid the switch
	disconnected map[openflow.DatapathID]time.Time // the time at which the switch was seen to be disconnected
	changes      sync.WaitGroup

	installedCount atomic.Int64 // hosts and prefixes that all switches have rules for
}

func newProactive(c *Config, b *broadcastTree, o *Owner, h *hosts.Table, topo *atomic.Pointer[topology.Topology], wake signal) *proactive {
	x := &proactive{
		cfg: c, tree: b, owner: o, hosts: h, topo: topo, wake: wake, links: newLinkMemory(b),
		tables: map[openflow.DatapathID]pathTable{}, traits: map[openflow.DatapathID]*pathTraits{},
		overdue: map[openflow.DatapathID]*pathsChange{}, paused: map[openflow.DatapathID]time.Time{}, disconnected: map[openflow.DatapathID]time.Time{},
	}
	x.planner = multipath.New(multipath.Options{
		Metric: c.ForwardMetric, Unequal: c.ForwardUnequal, Group: o.GroupID,
		Watch:  func(d openflow.DatapathID) bool { t := x.traits[d]; return t != nil && t.bucketsWatchPorts },
		Single: func(d openflow.DatapathID) bool { t := x.traits[d]; return t == nil || t.noSelectGroups },
	})
	return x
}

const (
	// adoptionGrace is the time after the controller's start during which rules that lead to a host
	// are kept although the host's switch has not reconnected.
	adoptionGrace = 30 * time.Second
	// maxPlanningTime is the longest planning time that counts for the pause before the next
	// planning.
	maxPlanningTime = time.Second
)

// run keeps the rules up to date until ctx ends.
func (x *proactive) run(ctx context.Context) {
	defer x.changes.Wait()
	if !x.cfg.Proactive {
		x.owner.Ready() // remove the rules from a time when the mode was proactive
		return
	}
	var retry <-chan time.Time
	ready, start := false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		case <-retry:
		}
		retry = nil
		if !ready && !x.tree.settled() {
			retry = time.After(x.cfg.DiscoveryInterval / 2)
			continue
		}
		began := time.Now()
		result := x.reconcile(ctx)
		x.installedCount.Store(int64(result.destinations))
		if !ready && result.done && (time.Since(start) >= adoptionGrace || x.hostsAreBack()) {
			ready = true
			x.owner.Ready()
		}
		switch {
		case !result.done:
			retry = time.After(0)
		case result.unsettled || !ready:
			retry = time.After(x.cfg.DiscoveryInterval / 2)
		}
		if tasks.Sleep(ctx, max(repairPause(time.Since(began)), repairPauseFactor*min(result.planning, maxPlanningTime))) != nil {
			return
		}
	}
}

// hostsAreBack reports whether the switches of all hosts are connected.
func (x *proactive) hostsAreBack() bool {
	return !slices.ContainsFunc(x.hosts.All(), func(h topology.Host) bool { return !x.up(h.At.Switch) })
}

// reconcileResult is the result of one attempt to adapt the rules to the network.
type reconcileResult struct {
	destinations int  // hosts and prefixes that all switches have rules for; 0 until all have
	done         bool // false if a switch has not taken its rules, so that the attempt is repeated without it
	unsettled    bool // true if the attempt is repeated when more is known
	planning     time.Duration
}

// reconcile adapts the rules of all destinations to the network.
func (x *proactive) reconcile(ctx context.Context) (result reconcileResult) {
	now := time.Now()
	x.collect(now)
	p := x.plan(now, x.bypassed)
	if x.changesDisconnected(p) {
		// A disconnected switch keeps its rules, so only paths that agree with those may use it.
		p = x.plan(now, func(d openflow.DatapathID) bool { return x.bypassed(d) || !x.up(d) })
		p.unsettled = true
	}
	result = reconcileResult{unsettled: p.unsettled || len(x.overdue)+len(x.paused) > 0, planning: time.Since(now)}
	for wave := range p.waves {
		if !x.apply(ctx, x.wave(p, wave)) {
			return result
		}
	}
	if result.done = x.apply(ctx, x.removals(p, !result.unsettled)); result.done && !result.unsettled {
		result.destinations = p.destinations
	}
	return result
}

// pathPlans holds the plans for all destinations.
type pathPlans struct {
	plans     map[openflow.DatapathID]multipath.Plan
	absent    map[openflow.Match]bool // matches of destinations that are not reachable
	waves     int
	switches  []openflow.DatapathID // reachable
	unsettled bool                  // links may exist that are not known
	// destinations is the number of hosts and prefixes that are planned for.
	destinations int
}

// plan returns the plans for all destinations. Their paths avoid the bypassed switches.
func (x *proactive) plan(now time.Time, bypassed func(openflow.DatapathID) bool) pathPlans {
	top, all, unsettled := x.links.topologies(x.topo.Load(), now, bypassed)
	x.planner.Begin(top, all)
	for _, t := range x.tables {
		t.keep(x.planner)
	}
	out := pathPlans{plans: map[openflow.DatapathID]multipath.Plan{}, absent: map[openflow.Match]bool{}, switches: top.Switches, unsettled: unsettled}
	for d, dest := range x.destinations() {
		plan, here := x.planner.Plan(dest)
		if !here {
			for _, m := range dest.Matches() {
				out.absent[m] = true
			}
			continue
		}
		out.plans[d], out.waves = plan, max(out.waves, len(plan))
		out.destinations += len(dest.Hosts) + len(dest.Prefixes)
	}
	return out
}

// bypassed reports whether paths avoid a switch, because it has not confirmed its rules in time or
// has refused them.
func (x *proactive) bypassed(d openflow.DatapathID) bool {
	return x.overdue[d] != nil || !x.paused[d].IsZero()
}

func (x *proactive) up(d openflow.DatapathID) bool {
	_, up := x.tree.switches.get(d)
	return up
}

// destinations returns the switches with the hosts and prefixes behind them.
func (x *proactive) destinations() map[openflow.DatapathID]multipath.Destination {
	out := map[openflow.DatapathID]multipath.Destination{}
	for _, prefix := range slices.SortedFunc(maps.Keys(x.cfg.ForwardPrefixes), netip.Prefix.Compare) {
		sw := x.cfg.ForwardPrefixes[prefix]
		d := out[sw]
		d.Switch, d.Prefixes = sw, append(d.Prefixes, prefix)
		out[sw] = d
	}
	for _, h := range x.selectHosts() {
		d := out[h.At.Switch]
		vlan := h.VLAN
		if x.cfg.IgnoreVLAN {
			vlan = rule.AnyVLAN
		}
		d.Switch, d.Hosts = h.At.Switch, append(d.Hosts, multipath.Host{MAC: h.MAC, VLAN: vlan, Port: h.At.Port, Local: d.Covers(h.IPs)})
		out[h.At.Switch] = d
	}
	return out
}

// selectHosts returns the hosts that have rules. If there are more hosts than a switch may have
// rules for, it leaves out hosts of the ports with the most; their packets are forwarded by the
// controller.
func (x *proactive) selectHosts() []topology.Host {
	all := x.hosts.All()
	most := max(0, x.cfg.ForwardRules-len(x.cfg.ForwardPrefixes))
	if len(all) <= most {
		return all
	}
	x.fullLog.Warn(x.owner.installer.log, "more hosts than rules by destination are allowed for", "hosts", len(all), "rules", x.cfg.ForwardRules)
	type candidate struct {
		host     topology.Host
		position int // among the hosts of its port
	}
	count, candidates := map[PortRef]int{}, make([]candidate, len(all))
	for i, h := range all {
		candidates[i] = candidate{h, count[h.At]}
		count[h.At]++
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.position, b.position) })
	for i := range all {
		all[i] = candidates[i].host
	}
	return all[:most]
}
