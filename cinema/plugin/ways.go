package plugin

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// line is what is in the network of a channel.
type line struct {
	// groups are those of its copies, by switch. Only the one who works on the channel has them.
	groups map[openflow.DatapathID]*tree.Groups
	// The service's lock guards what follows: the tree that is wanted and the one that the
	// switches have, with the former way beside each, and why gateways, or ports of theirs,
	// do not get it.
	planned, applied tree.Tree
	planBefore       tree.Tree
	former           former
	looked           time.Time // is when a shorter way was looked for
	refused          map[string]error
	over             map[netip.AddrPort]bool
	copies           map[openflow.DatapathID]copied
	// planLists and lists are the buckets of the groups, as they are to be and as the switches
	// have them.
	planLists, lists map[groupAt][]openflow.Bucket
	mending          bool // a link of it is gone, and it is worked on
	ordered          bool // what is planned is to be written from the ends to the root
}

// copied is what a switch does for a channel's viewers.
type copied struct{ groups, copies int }

// ways are the trees of channels, and what is in the network of each.
type ways struct {
	*core
	sources *sources
	viewers *viewers
	egress  *egressRegistry
	book    *tree.Book
	storing service.Loop

	mu    sync.Mutex           // guards what follows
	lines map[string]*line     // by channel
	saved map[string]tree.Tree // as the store has them
	// unmetered are the switches that take no meters.
	unmetered map[openflow.DatapathID]bool
	changed   time.Time                         // is when links last came or went
	sure      map[openflow.DatapathID]time.Time // from when on the links are known of switches that were away; zero: not yet
}

func newWays(c *core, s *sources, v *viewers, e *egressRegistry) *ways {
	return &ways{
		core: c, sources: s, viewers: v, egress: e, book: tree.NewBook(c.Share, c.Network.Capacity), storing: service.NewLoop(),
		lines: map[string]*line{}, saved: map[string]tree.Tree{}, unmetered: map[openflow.DatapathID]bool{}, sure: map[openflow.DatapathID]time.Time{},
	}
}

// line is that of a channel. The lock is held.
func (w *ways) line(channel string) *line {
	l := w.lines[channel]
	if l == nil {
		l = &line{groups: map[openflow.DatapathID]*tree.Groups{}}
		w.lines[channel] = l
	}
	return l
}

// rules are the service's part of the ledger, which notes what has come into the switches.
type rules struct {
	Owner
	ways *ways
}

// Apply implements service.Ledger, as does Remove.
func (r *rules) Apply(ctx context.Context, channel string, p network.Program, o network.ApplyOptions) error {
	o.Ordered = r.ways.ordered(channel)
	err := r.ways.write(ctx, channel, p, o)
	if err == nil {
		r.ways.applied(channel)
	}
	return err
}

// Remove takes the rules of a channel away.
func (r *rules) Remove(ctx context.Context, channel string) error {
	err := r.Owner.Remove(ctx, channel)
	if err == nil {
		r.ways.forget(channel)
	}
	return err
}

// forget ends what there is of a channel.
func (w *ways) forget(channel string) {
	w.book.Release(channel)
	w.mu.Lock()
	delete(w.lines, channel)
	w.mu.Unlock()
	w.sources.forget(channel)
	w.storing.Wake()
}

// applied notes that the switches have what was planned for a channel.
func (w *ways) applied(channel string) {
	w.mu.Lock()
	l := w.line(channel)
	was, now := l.applied, l.planned
	l.applied, l.lists = now, l.planLists
	w.keepFormer(channel, l, l.planBefore, was.Moves(now), was.Leaves(now))
	w.mu.Unlock()
	if !was.Equal(now) {
		w.publish("tree.changed", map[string]any{"channel": channel, "links": len(now.Edges), "added": more(was, now), "removed": more(now, was)})
		w.metrics.trees.Inc()
		w.storing.Wake()
	}
}

// more counts the links of a tree that another does not have.
func more(than, t tree.Tree) (n int) {
	for _, e := range t.Edges {
		if !slices.Contains(than.Edges, e) {
			n++
		}
	}
	return n
}

// program is a channel as rules and groups, from where its gateways and viewers are now. A
// viewer to whom it cannot get costs the others nothing.
func (w *ways) program(ctx context.Context, x service.Item[Channel]) (network.Program, error) {
	c := &x.Value
	root, from, err := w.sources.find(c)
	if err != nil {
		return network.Program{}, err
	}
	top := w.Network.Topology()
	if !top.Has(root.At.Switch) {
		return network.Program{}, fmt.Errorf("switch %v of its ingress gateway: %w", root.At.Switch, network.ErrSwitchDown)
	}
	flow := netip.AddrPortFrom(from, gatewayapi.SourcePort(c.Number))
	a := w.audience(c, root, flow)
	want := tree.Want{Root: root.At, Rate: uint64(c.BitRate), Switches: slices.Sorted(maps.Keys(a.copies)), Unsure: w.unsure}
	t, lacking := w.book.Grow(c.Name, top, want)
	a.refuse(lacking)
	w.mu.Lock()
	l := w.line(c.Name)
	was := l.applied
	w.mu.Unlock()
	if was.Equal(t) && len(lacking) == 0 {
		t = w.shorter(c.Name, l, t, want, top)
	}
	over := l.share(a.copies)
	before, circle := w.beside(l, t, top, &a)
	plan := tree.Plan{
		Tree: t, Before: before, From: flow, To: netip.AddrPortFrom(w.Media, gatewayapi.MediaPort),
		Rate: uint64(c.BitRate), Meter: w.meter(c, root.At.Switch),
		Copies: l.groups, Queues: w.treat(t, a.treated), LinkMACs: w.LinkMACs,
		Group: func(n int) uint32 { return w.Rules.GroupID(tree.GroupNumber(c.Number, n)) },
	}
	// Where the old way is still there, the new one is there before it is left.
	news := w.note(l, plan, was.Moves(t) && w.there(was, top), a.refused, over)
	for gateway, why := range news {
		w.publish("tree.refused", map[string]any{"channel": c.Name, "gateway": gateway, "reason": why.Error()})
	}
	if circle || tree.Bounces(was, t, l.groups) {
		if err := w.clear(ctx, c.Name, plan, was.Common(t)); err != nil {
			return network.Program{}, err
		}
	}
	return plan.Program(), nil
}

// note keeps what is planned, and returns whose refusals are new.
func (w *ways) note(l *line, p tree.Plan, ordered bool, refused map[string]error, over map[netip.AddrPort]bool) map[string]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := map[string]error{}
	for gateway, why := range refused {
		if was := l.refused[gateway]; was == nil || was.Error() != why.Error() {
			news[gateway] = why
		}
	}
	l.planned, l.planBefore, l.ordered, l.refused, l.over, l.copies = p.Tree, p.Before, ordered, refused, over, map[openflow.DatapathID]copied{}
	l.planLists = map[groupAt][]openflow.Bucket{}
	for d, g := range l.groups {
		l.copies[d] = copied{g.Count(), g.Len()}
		for n, list := range g.Lists() {
			l.planLists[groupAt{d, p.Group(n)}] = list
		}
	}
	return news
}

func (w *ways) ordered(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[channel]
	return l != nil && l.ordered
}

// clear takes what a tree has no longer out of the switches before the rest of it comes in,
// where rules of both might lead in a circle.
func (w *ways) clear(ctx context.Context, channel string, p tree.Plan, kept tree.Tree) error {
	p.Tree = kept
	return w.write(ctx, channel, p.Program(), network.ApplyOptions{AllowDown: true})
}
