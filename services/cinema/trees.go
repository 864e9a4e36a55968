package cinema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
	"github.com/sluice-net/sluice/store"
)

// channelState holds what is in the network for a channel.
type channelState struct {
	// written is the program that was last written to the switches, or nil if that has failed.
	// Only the worker that installs the channel uses it.
	written *network.Program
	// treeManager.mu guards what follows: the groups of the channel's copies by switch, the
	// planned tree and the one that the switches have, the draining tree beside each, and why
	// gateways do not get the channel.
	groups           map[openflow.DatapathID]*tree.Groups
	planned, applied tree.Tree
	planDraining     tree.Tree
	draining         drainingTree
	shortenTriedAt   time.Time // when a shorter tree was last tried
	refused          map[string]error
	copies           map[openflow.DatapathID]copyCount
	// planLists and lists are the planned and the installed buckets of the groups.
	planLists, lists map[groupAt][]openflow.Bucket
	repairing        bool // a link of its tree is down, and a repair is in progress
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
		cs = &channelState{}
		tm.states[channel] = cs
	}
	return cs
}

// rules is the service's part of the ledger of rules. When it removes the rules of a channel, it also
// removes everything else that is kept for the channel.
type rules struct {
	Owner
	trees *treeManager
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

// maxPlans bounds how often a channel is planned in a row, because other channels may reserve the
// links of its plan before it does.
const maxPlans = 10

// install brings a channel's tree into the network, or changes it there. It reserves the links of the
// tree, records the plan, publishes which gateways are newly refused, and writes the rules. It returns
// refusals if the channel does not reach all of its viewers. known reports whether the channel's rules
// could be computed.
func (tm *treeManager) install(ctx context.Context, x kit.Item[Channel], requested bool) (known bool, err error) {
	p, err := tm.reserve(&x.Value)
	if err != nil {
		return false, err
	}
	cs, refused := tm.record(x.Name, p)
	for gateway, why := range refused {
		tm.publish("tree.refused", map[string]any{"channel": x.Name, "gateway": gateway, "reason": why.Error()})
	}
	if len(p.carried) > 0 {
		tm.Treatments.Carry(p.carried)
	}
	if err := tm.write(ctx, x.Name, cs, p, requested); err != nil {
		return true, err
	}
	tm.applied(x.Name)
	return true, p.refused.err()
}

// reserve plans a channel, and reserves the links of its tree.
func (tm *treeManager) reserve(c *Channel) (p *plan, err error) {
	for range maxPlans {
		s, err := tm.situation(c)
		if err != nil {
			return nil, err
		}
		p = s.plan()
		if err = tm.reservations.Reserve(s.view, p.Rate, p.Tree); err == nil {
			return p, nil
		}
	}
	return nil, err
}

// situation returns the state from which the plan of a channel is computed.
func (tm *treeManager) situation(c *Channel) (*situation, error) {
	root, from, err := tm.sources.locate(c)
	if err != nil {
		return nil, err
	}
	top := tm.Network.Topology()
	if !top.Has(root.At.Switch) {
		return nil, fmt.Errorf("switch %v of its ingress gateway: %w", root.At.Switch, network.ErrSwitchDown)
	}
	flow := netip.AddrPortFrom(from, gatewayapi.SourcePort(c.Number))
	s := &situation{
		channel: c, now: time.Now(), root: root, from: flow, to: netip.AddrPortFrom(tm.Media, gatewayapi.MediaPort), top: top,
		view: tm.reservations.View(c.Name), audience: newAudience(tm.core, tm.viewers, tm.egress, c, root, flow), meter: tm.meterNumber(c, root.At.Switch), linkMACs: tm.LinkMACs,
		group:      func(n int) uint32 { return tm.Rules.GroupID(tree.GroupNumber(c.Number, n)) },
		unverified: tm.unverified, queue: tm.Treatments.Queue,
		roomTwice: func(gateway string) bool {
			g := tm.egress.Get(gateway)
			return g == nil || tm.viewers.roomForDouble(bounds{port: capacityAt(tm.core, g, tm.egress.List()), rate: tm.rate})
		},
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.state(c.Name)
	s.groups, s.planned, s.applied, s.planDraining, s.draining = cs.groups, cs.planned, cs.applied, cs.planDraining, cs.draining
	s.shortenTriedAt, s.linksChangedAt = cs.shortenTriedAt, tm.linksChangedAt
	return s, nil
}

// record records a channel's plan. It returns the channel's state, and the refusals that are new, by
// gateway.
func (tm *treeManager) record(channel string, p *plan) (*channelState, map[string]error) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.state(channel)
	news := map[string]error{}
	for gateway, why := range p.refused.gateways {
		if prev := cs.refused[gateway]; prev == nil || prev.Error() != why.Error() {
			news[gateway] = why
		}
	}
	cs.groups, cs.planned, cs.planDraining, cs.refused, cs.copies = p.Copies, p.Tree, p.Draining, p.refused.gateways, map[openflow.DatapathID]copyCount{}
	if p.triedShorter {
		cs.shortenTriedAt = time.Now()
	}
	cs.planLists = map[groupAt][]openflow.Bucket{}
	for d, g := range cs.groups {
		cs.copies[d] = copyCount{g.Count(), g.Len()}
		for n, list := range g.Lists() {
			cs.planLists[groupAt{d, p.Group(n)}] = list
		}
	}
	return cs, news
}

// write writes the rules and groups of a plan. It first removes parts of the old tree that might form
// a loop with the new one. If the switches have the rules already, it writes them again only if
// requested is true.
func (tm *treeManager) write(ctx context.Context, channel string, cs *channelState, p *plan, requested bool) error {
	if p.kept != nil {
		old := p.Plan
		old.Tree = *p.kept
		cs.written = nil
		if err := tm.apply(ctx, channel, old.Program(), network.ApplyOptions{AllowDown: true}); err != nil {
			return err
		}
	}
	rules := p.Program()
	if !requested && cs.written != nil && reflect.DeepEqual(*cs.written, rules) {
		return nil
	}
	cs.written = nil
	if err := tm.apply(ctx, channel, rules, network.ApplyOptions{AllowDown: true, Ordered: p.ordered}); err != nil {
		return err
	}
	cs.written = &rules
	return nil
}

// groupAt identifies a group of a switch.
type groupAt struct {
	sw openflow.DatapathID
	id uint32
}

// startRepairs returns the channels whose trees use the link that leaves by a port, except
// those under repair already. The caller calls repairDone for each of them.
func (tm *treeManager) startRepairs(from network.PortRef) (channels []string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for name, cs := range tm.states {
		if !cs.repairing && slices.ContainsFunc(cs.applied.Edges, func(e tree.Edge) bool { return e.From == from }) {
			cs.repairing = true
			channels = append(channels, name)
		}
	}
	return channels
}

func (tm *treeManager) repairDone(channel string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if cs := tm.states[channel]; cs != nil {
		cs.repairing = false
	}
}

// setDraining records the tree that drains, which is the zero value if there is none. It starts the
// tree's drain time if the channel was moved from the tree (moved) or branches of the tree were pruned
// (left). tm.mu is held.
func (tm *treeManager) setDraining(channel string, cs *channelState, before tree.Tree, moved, left bool) {
	if before.Equal(cs.draining.tree) && !cs.draining.pruned { // a tree that drains after a move keeps its own time
		left = false
	}
	cs.draining.tree = before
	switch {
	case len(before.Edges) == 0:
		cs.draining.until, cs.draining.pruned = time.Time{}, false
		return
	case !moved && !left:
		return
	}
	cs.draining.until, cs.draining.pruned = time.Now().Add(drainTime), !moved
	if !cs.draining.waiting {
		cs.draining.waiting = tm.tasks.Start(func(ctx context.Context) { tm.removeDrained(ctx, channel, cs) })
	}
}

// removeDrained removes the old tree of a channel from the switches at the end of its drain
// time.
func (tm *treeManager) removeDrained(ctx context.Context, channel string, cs *channelState) {
	for {
		tm.mu.Lock()
		left := time.Until(cs.draining.until)
		cs.draining.waiting = left > 0
		tm.mu.Unlock()
		if left <= 0 {
			break
		}
		if tasks.Sleep(ctx, left) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_ = tm.Channels.Reconcile(ctx, channel) // the channel's condition has the error
}

const (
	treePrefix = Name + "/trees/"
	// storeRetry is the time after which trees that could not be stored are stored again,
	// storeDebounce how long changes of trees are collected, and storeTimeout bounds one access
	// to the store.
	storeRetry    = 5 * time.Second
	storeDebounce = 200 * time.Millisecond
	storeTimeout  = 5 * time.Second
	// maxStoreOps is how many operations a store accepts in one transaction.
	maxStoreOps = 128
)

// loadTrees reads the trees from the store. A channel whose tree cannot be read gets a new one.
func (tm *treeManager) loadTrees(ctx context.Context) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	records := kit.Records[tree.Tree]{Store: tm.Store, Prefix: treePrefix, Plural: "trees", Log: tm.Log}
	if err := records.Load(ctx, func(channel string, t tree.Tree) error { tm.stored[channel] = t; return nil }); err != nil {
		tm.Log.Error("channels get new trees", "error", err)
	}
}

// persist stores changed trees until ctx ends. A restarted controller begins with the stored trees, so
// that it plans the rules that the switches have already.
func (tm *treeManager) persist(ctx context.Context) {
	select {
	case <-tm.ready:
		tm.storeLoop.Run(ctx, storeDebounce, storeRetry, tm.storeChanges)
	case <-ctx.Done():
	}
}

// storeChanges stores the trees that have changed, and deletes those of channels without one.
func (tm *treeManager) storeChanges(ctx context.Context) {
	tm.mu.Lock()
	now, saved := map[string]tree.Tree{}, maps.Clone(tm.stored)
	for channel, cs := range tm.states {
		if len(cs.applied.Edges) > 0 {
			now[channel] = cs.applied
		}
	}
	tm.mu.Unlock()
	var ops []store.Op
	for channel, t := range now {
		if prev, ok := saved[channel]; ok && prev.Equal(t) {
			continue
		}
		if b, err := json.Marshal(t); err == nil {
			ops = append(ops, store.OpPut(treePrefix+channel, b))
		}
	}
	for channel := range saved {
		if _, ok := now[channel]; !ok {
			ops = append(ops, store.OpDelete(treePrefix+channel))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for some := range slices.Chunk(ops, maxStoreOps) {
		if err := tm.Store.Apply(ctx, some...); err != nil {
			tm.warnLimiter.Warn(tm.Log, "cannot store trees; will try again", "error", err)
			return
		}
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.stored = now
}

// restore gives a channel the tree that was stored.
func (tm *treeManager) restore(c *Channel) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if t, ok := tm.stored[c.Name]; ok {
		tm.state(c.Name).applied = t
		tm.reservations.Restore(c.Name, uint64(c.BitRate), t)
	}
}

// missingLink returns the first link of the restored trees that the topology does not have yet,
// or "".
func (tm *treeManager) missingLink() string {
	top := tm.Network.Topology()
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for channel, cs := range tm.states {
		for _, e := range cs.applied.Edges {
			if !e.InTopology(top) {
				return fmt.Sprintf("the link %v of channel %s", e.From, channel)
			}
		}
	}
	return ""
}

// apply installs a channel's rules and groups. A switch that supports no meters gets none;
// there only the ingress gateway limits producers to the channel's rate.
func (tm *treeManager) apply(ctx context.Context, channel string, p network.Program, o network.ApplyOptions) error {
	err := tm.Rules.Apply(ctx, channel, p, o)
	if len(p.Meters) == 0 || !errors.Is(err, network.ErrRefused) {
		return err
	}
	if tm.Rules.Apply(ctx, channel, tree.WithoutMeters(p), o) != nil {
		return err // the refusal has another cause
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for _, m := range p.Meters {
		if !tm.withoutMeters[m.Switch] {
			tm.Log.Info("a switch supports no meters: only ingress gateways limit producers there to their rates", "switch", m.Switch, "error", err)
		}
		tm.withoutMeters[m.Switch] = true
	}
	return nil
}

// meterNumber returns the meter of a channel that enters the network at a switch, or zero if
// the switch supports no meters.
func (tm *treeManager) meterNumber(c *Channel, at openflow.DatapathID) uint32 {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if tm.withoutMeters[at] {
		return 0
	}
	return tree.MeterNumber(c.Number)
}

// retryMeters makes the next installation try meters at a switch again.
func (tm *treeManager) retryMeters(d openflow.DatapathID) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	delete(tm.withoutMeters, d)
}

// linkDiscoveryTime is how long it takes until the links of a reconnected switch are known.
// Usually these links were up, and carried channels, while the switch was disconnected.
const linkDiscoveryTime = 3 * time.Second

// linksChanged records that a link has come up or gone down.
func (tm *treeManager) linksChanged() {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.linksChangedAt = time.Now()
}

// switchChanged records that a switch has connected or disconnected.
func (tm *treeManager) switchChanged(d openflow.DatapathID, up bool) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(tm.linksKnownAt, func(_ openflow.DatapathID, at time.Time) bool { return !at.IsZero() && at.Before(now) })
	if !up {
		tm.linksKnownAt[d] = time.Time{}
	} else if _, ok := tm.linksKnownAt[d]; ok {
		tm.linksKnownAt[d] = now.Add(linkDiscoveryTime)
	}
}

// unverified reports whether a link may be up although the topology does not have it: one of
// its switches is disconnected or has just reconnected, and neither of its ports is known to be
// down.
func (tm *treeManager) unverified(e tree.Edge) bool {
	tm.mu.Lock()
	now, unknown := time.Now(), false
	for _, at := range []network.PortRef{e.From, e.To} {
		if sure, ok := tm.linksKnownAt[at.Switch]; ok && (sure.IsZero() || now.Before(sure)) {
			unknown = true
		}
	}
	tm.mu.Unlock()
	if !unknown {
		return false
	}
	for _, at := range []network.PortRef{e.From, e.To} {
		if up, known := tm.Network.PortUp(at); known && !up {
			return false
		}
	}
	return true
}
