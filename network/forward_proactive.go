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

// proactive keeps rules by destination on all switches, so that ordinary packets ask nobody.
type proactive struct {
	cfg   *Config
	base  *base
	owner *Owner
	hosts *hosts.Table
	topo  *atomic.Pointer[topology.Topology]
	wake  signal
	full  lograte.Limit // of warnings

	planner *multipath.Planner
	links   linkMemory
	tables  map[openflow.DatapathID]pathTable // what switches have
	traits  map[openflow.DatapathID]*pathTraits
	late    map[openflow.DatapathID]*pathsChange
	paused  map[openflow.DatapathID]time.Time // until when they are led around
	away    map[openflow.DatapathID]time.Time // since when, of those that have a table
	changes sync.WaitGroup

	everywhere atomic.Int64 // hosts and prefixes that all switches have rules for
}

func newProactive(c *Config, b *base, o *Owner, h *hosts.Table, topo *atomic.Pointer[topology.Topology], wake signal) *proactive {
	x := &proactive{
		cfg: c, base: b, owner: o, hosts: h, topo: topo, wake: wake, links: newLinkMemory(b),
		tables: map[openflow.DatapathID]pathTable{}, traits: map[openflow.DatapathID]*pathTraits{},
		late: map[openflow.DatapathID]*pathsChange{}, paused: map[openflow.DatapathID]time.Time{}, away: map[openflow.DatapathID]time.Time{},
	}
	x.planner = multipath.New(multipath.Options{
		Metric: c.ForwardMetric, Unequal: c.ForwardUnequal, Group: o.GroupID,
		Watch:  func(d openflow.DatapathID) bool { t := x.traits[d]; return t != nil && t.watches },
		Single: func(d openflow.DatapathID) bool { t := x.traits[d]; return t == nil || t.single },
	})
	return x
}

const (
	// adoption is for how long after a start rules are kept that lead to hosts of which the
	// switch has not come back.
	adoption = 30 * time.Second
	// longestPlanning is the longest time that counts of a plan that nothing is planned after.
	longestPlanning = time.Second
)

// run keeps the rules until ctx ends.
func (x *proactive) run(ctx context.Context) {
	defer x.changes.Wait()
	if !x.cfg.Proactive {
		x.owner.Ready() // what there is from when it was is removed
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
		if !ready && !x.base.settled() {
			retry = time.After(x.cfg.DiscoveryInterval / 2)
			continue
		}
		began := time.Now()
		b := x.bring(ctx)
		x.everywhere.Store(int64(b.led))
		if !ready && b.done && (time.Since(start) >= adoption || x.hostsAreBack()) {
			ready = true
			x.owner.Ready()
		}
		switch {
		case !b.done:
			retry = time.After(0)
		case b.unsettled || !ready:
			retry = time.After(x.cfg.DiscoveryInterval / 2)
		}
		if tasks.Sleep(ctx, max(repairPause(time.Since(began)), repairShare*min(b.planning, longestPlanning))) != nil {
			return
		}
	}
}

// hostsAreBack says whether the switches of all hosts are connected.
func (x *proactive) hostsAreBack() bool {
	return !slices.ContainsFunc(x.hosts.All(), func(h topology.Host) bool { return !x.up(h.At.Switch) })
}

// brought is what has become of an attempt to bring the rules in line with the network.
type brought struct {
	led       int  // hosts and prefixes that all switches have rules for; none before they have
	done      bool // false if a switch has not taken its rules: it has to be done again, around it
	unsettled bool // it has to be done again when more is known
	planning  time.Duration
}

// bring brings the rules of all destinations in line with the network.
func (x *proactive) bring(ctx context.Context) (b brought) {
	now := time.Now()
	x.collect(now)
	p := x.plan(now, x.alone)
	if x.changesAway(p) {
		// Who is not connected goes on as before: only what agrees with that may lead by it.
		p = x.plan(now, func(d openflow.DatapathID) bool { return x.alone(d) || !x.up(d) })
		p.unsettled = true
	}
	b = brought{unsettled: p.unsettled || len(x.late)+len(x.paused) > 0, planning: time.Since(now)}
	for wave := range p.waves {
		if !x.round(ctx, x.wave(p, wave)) {
			return b
		}
	}
	if b.done = x.round(ctx, x.over(p, !b.unsettled)); b.done && !b.unsettled {
		b.led = p.destinations
	}
	return b
}

// pathPlans are the plans for all destinations.
type pathPlans struct {
	of        map[openflow.DatapathID]multipath.Plan
	left      map[openflow.Match]bool // rules to destinations that are not there
	waves     int
	here      []openflow.DatapathID // the switches that are there
	unsettled bool                  // links may be there that are not known
	// destinations are the hosts and prefixes that are planned for.
	destinations int
}

// plan plans for all destinations, without the switches that are to be left alone.
func (x *proactive) plan(now time.Time, alone func(openflow.DatapathID) bool) pathPlans {
	top, all, unsettled := x.links.network(x.topo.Load(), now, alone)
	x.planner.Begin(top, all)
	for _, t := range x.tables {
		t.keep(x.planner)
	}
	out := pathPlans{of: map[openflow.DatapathID]multipath.Plan{}, left: map[openflow.Match]bool{}, here: top.Switches, unsettled: unsettled}
	for d, dest := range x.destinations() {
		plan, here := x.planner.Plan(dest)
		if !here {
			for _, m := range dest.Matches() {
				out.left[m] = true
			}
			continue
		}
		out.of[d], out.waves = plan, max(out.waves, len(plan))
		out.destinations += len(dest.Hosts) + len(dest.Prefixes)
	}
	return out
}

// alone says that a switch is led around.
func (x *proactive) alone(d openflow.DatapathID) bool {
	return x.late[d] != nil || !x.paused[d].IsZero()
}

func (x *proactive) up(d openflow.DatapathID) bool {
	_, up := x.base.switches.get(d)
	return up
}

// destinations are the switches with all that is behind them.
func (x *proactive) destinations() map[openflow.DatapathID]multipath.Destination {
	out := map[openflow.DatapathID]multipath.Destination{}
	for _, prefix := range slices.SortedFunc(maps.Keys(x.cfg.ForwardPrefixes), netip.Prefix.Compare) {
		sw := x.cfg.ForwardPrefixes[prefix]
		d := out[sw]
		d.Switch, d.Prefixes = sw, append(d.Prefixes, prefix)
		out[sw] = d
	}
	for _, h := range x.led() {
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

// led are the hosts that have rules. If there are more than a switch may have rules for, the
// packets of the others go by way of the controller: they are those of the ports with the most.
func (x *proactive) led() []topology.Host {
	all := x.hosts.All()
	most := max(0, x.cfg.ForwardRules-len(x.cfg.ForwardPrefixes))
	if len(all) <= most {
		return all
	}
	x.full.Warn(x.owner.in.log, "there are more hosts than rules by destination may be for", "hosts", len(all), "rules", x.cfg.ForwardRules)
	type place struct {
		host topology.Host
		turn int // at its port
	}
	behind, places := map[PortRef]int{}, make([]place, len(all))
	for i, h := range all {
		places[i] = place{h, behind[h.At]}
		behind[h.At]++
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.turn, b.turn) })
	for i := range all {
		all[i] = places[i].host
	}
	return all[:most]
}
