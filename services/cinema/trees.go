package cinema

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// channelState holds what is in the network for a channel.
type channelState struct {
	// groups holds the groups of the channel's copies, by switch. Only the worker that
	// reconciles the channel uses it.
	groups map[openflow.DatapathID]*tree.Groups
	// treeManager.mu guards what follows: the planned tree and the one that the switches have,
	// the draining tree beside each, and why gateways, or ports of theirs, do not get the
	// channel.
	planned, applied tree.Tree
	planDraining     tree.Tree
	draining         drainingTree
	shortenTriedAt   time.Time // when a shorter tree was last tried
	refused          map[string]error
	overflow         map[netip.AddrPort]bool
	copies           map[openflow.DatapathID]copyCount
	// planLists and lists are the planned and the installed buckets of the groups.
	planLists, lists map[groupAt][]openflow.Bucket
	repairing        bool // a link of it is down, and a repair is in progress
	ordered          bool // the plan is written from the leaves to the root
}

// copyCount counts a switch's groups and copies for a channel.
type copyCount struct{ groups, copies int }

// treeManager manages the trees of channels, and the rules and groups that implement them.
type treeManager struct {
	*core
	sources      *sources
	viewers      *viewers
	egress       *egressRegistry
	reservations *tree.Reservations
	storeLoop    kit.Loop

	mu     sync.Mutex               // guards the fields below
	states map[string]*channelState // by channel
	stored map[string]tree.Tree     // trees in the store, by channel
	// withoutMeters holds the switches that support no meters.
	withoutMeters  map[openflow.DatapathID]bool
	linksChangedAt time.Time                         // when a link last came up or went down
	linksKnownAt   map[openflow.DatapathID]time.Time // when the links of a reconnected switch count as known; zero while it is disconnected
}

func newTreeManager(c *core, s *sources, v *viewers, e *egressRegistry) *treeManager {
	return &treeManager{
		core: c, sources: s, viewers: v, egress: e, reservations: tree.NewReservations(c.Share, c.Network.Capacity), storeLoop: kit.NewLoop(),
		states: map[string]*channelState{}, stored: map[string]tree.Tree{}, withoutMeters: map[openflow.DatapathID]bool{}, linksKnownAt: map[openflow.DatapathID]time.Time{},
	}
}

// state returns the state of a channel. tm.mu is held.
func (tm *treeManager) state(channel string) *channelState {
	cs := tm.states[channel]
	if cs == nil {
		cs = &channelState{groups: map[openflow.DatapathID]*tree.Groups{}}
		tm.states[channel] = cs
	}
	return cs
}

// rules is the service's part of the ledger, and records what has been installed in the
// switches.
type rules struct {
	Owner
	trees *treeManager
}

// Apply implements kit.Ledger.
func (r *rules) Apply(ctx context.Context, channel string, p network.Program, o network.ApplyOptions) error {
	o.Ordered = r.trees.ordered(channel)
	err := r.trees.apply(ctx, channel, p, o)
	if err == nil {
		r.trees.applied(channel)
	}
	return err
}

// Remove implements kit.Ledger.
func (r *rules) Remove(ctx context.Context, channel string) error {
	err := r.Owner.Remove(ctx, channel)
	if err == nil {
		r.trees.forget(channel)
	}
	return err
}

// forget removes everything that is kept for a channel.
func (tm *treeManager) forget(channel string) {
	tm.reservations.Release(channel)
	tm.mu.Lock()
	delete(tm.states, channel)
	tm.mu.Unlock()
	tm.sources.unassign(channel)
	tm.storeLoop.Wake()
}

// applied records that the switches have the planned tree of a channel.
func (tm *treeManager) applied(channel string) {
	tm.mu.Lock()
	cs := tm.state(channel)
	prev, now := cs.applied, cs.planned
	cs.applied, cs.lists = now, cs.planLists
	tm.setDraining(channel, cs, cs.planDraining, prev.Moves(now), prev.Prunes(now))
	tm.mu.Unlock()
	if !prev.Equal(now) {
		tm.publish("tree.changed", map[string]any{"channel": channel, "links": len(now.Edges), "added": countAdded(prev, now), "removed": countAdded(now, prev)})
		tm.metrics.trees.Inc()
		tm.storeLoop.Wake()
	}
}

// countAdded returns how many links of t are not in than.
func countAdded(than, t tree.Tree) (n int) {
	for _, e := range t.Edges {
		if !slices.Contains(than.Edges, e) {
			n++
		}
	}
	return n
}

// program returns the rules and groups of a channel for the present places of its gateways and
// viewers. A viewer that the channel cannot reach does not affect the others.
func (tm *treeManager) program(ctx context.Context, x kit.Item[Channel]) (network.Program, error) {
	c := &x.Value
	root, from, err := tm.sources.locate(c)
	if err != nil {
		return network.Program{}, err
	}
	top := tm.Network.Topology()
	if !top.Has(root.At.Switch) {
		return network.Program{}, fmt.Errorf("switch %v of its ingress gateway: %w", root.At.Switch, network.ErrSwitchDown)
	}
	flow := netip.AddrPortFrom(from, gatewayapi.SourcePort(c.Number))
	a := tm.audience(c, root, flow)
	want := tree.Want{Root: root.At, Rate: uint64(c.BitRate), Switches: slices.Sorted(maps.Keys(a.copies)), Unverified: tm.unverified}
	t, lacking := tm.reservations.Grow(c.Name, top, want)
	a.refuse(lacking)
	tm.mu.Lock()
	cs := tm.state(c.Name)
	prev := cs.applied
	tm.mu.Unlock()
	if prev.Equal(t) && len(lacking) == 0 {
		t = tm.shorten(c.Name, cs, t, want, top)
	}
	overflow := cs.setCopies(a.copies)
	before, loops := tm.drainingBeside(cs, t, top, &a)
	plan := tree.Plan{
		Tree: t, Draining: before, From: flow, To: netip.AddrPortFrom(tm.Media, gatewayapi.MediaPort),
		Rate: uint64(c.BitRate), Meter: tm.meterNumber(c, root.At.Switch),
		Copies: cs.groups, Queues: tm.queues(t, a.carried), LinkMACs: tm.LinkMACs,
		Group: func(n int) uint32 { return tm.Rules.GroupID(tree.GroupNumber(c.Number, n)) },
	}
	// If the old tree still forwards, the new one is complete before the old one is left.
	news := tm.note(cs, plan, prev.Moves(t) && tm.intact(prev, top), a.refused, overflow)
	for gateway, why := range news {
		tm.publish("tree.refused", map[string]any{"channel": c.Name, "gateway": gateway, "reason": why.Error()})
	}
	if loops || tree.Bounces(prev, t, cs.groups) {
		if err := tm.removeOld(ctx, c.Name, plan, prev.Common(t)); err != nil {
			return network.Program{}, err
		}
	}
	return plan.Program(), nil
}

// note records what is planned, and returns the refusals that are new, by gateway.
func (tm *treeManager) note(cs *channelState, p tree.Plan, ordered bool, refused map[string]error, overflow map[netip.AddrPort]bool) map[string]error {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	news := map[string]error{}
	for gateway, why := range refused {
		if prev := cs.refused[gateway]; prev == nil || prev.Error() != why.Error() {
			news[gateway] = why
		}
	}
	cs.planned, cs.planDraining, cs.ordered, cs.refused, cs.overflow, cs.copies = p.Tree, p.Draining, ordered, refused, overflow, map[openflow.DatapathID]copyCount{}
	cs.planLists = map[groupAt][]openflow.Bucket{}
	for d, g := range cs.groups {
		cs.copies[d] = copyCount{g.Count(), g.Len()}
		for n, list := range g.Lists() {
			cs.planLists[groupAt{d, p.Group(n)}] = list
		}
	}
	return news
}

func (tm *treeManager) ordered(channel string) bool {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.states[channel]
	return cs != nil && cs.ordered
}

// removeOld removes the parts of the old tree that the new one does not have, before the new
// parts are installed. It is used where the rules of both might form a loop.
func (tm *treeManager) removeOld(ctx context.Context, channel string, p tree.Plan, kept tree.Tree) error {
	p.Tree = kept
	return tm.apply(ctx, channel, p.Program(), network.ApplyOptions{AllowDown: true})
}
