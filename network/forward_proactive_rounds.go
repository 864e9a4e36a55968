package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network/multipath"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// pauseFactor is the number of request timeouts during which paths avoid a switch that has
	// refused its rules.
	pauseFactor = 3
	// maxRefusedRules is the number of refused rules that are left out of a switch's table. A
	// switch that refuses more is bypassed.
	maxRefusedRules = 16
)

// pathTraits holds the abilities of a switch, and the rules that it has refused since it connected.
type pathTraits struct {
	upAt              time.Time
	bucketsWatchPorts bool // buckets of SELECT groups may watch their port
	noSelectGroups    bool // the switch has no SELECT groups
	refused           map[openflow.Match]bool
}

// pathsChange is a change of one switch's rules.
type pathsChange struct {
	before pathTable
	done   chan struct{} // closed when err is set
	err    error
}

// eachMissing calls each for the rules of a wave that switches do not have yet.
func (x *proactive) eachMissing(p pathPlans, wave int, each func(multipath.Part, rule.Rule)) {
	for _, plan := range p.plans {
		if wave >= len(plan) {
			continue
		}
		for _, part := range plan[wave] {
			t, traits := x.tables[part.Switch], x.traits[part.Switch]
			for _, r := range part.Rules {
				if !t.has(r) && (traits == nil || !traits.refused[r.Match]) {
					each(part, r)
				}
			}
		}
	}
}

// changesDisconnected reports whether rules of a disconnected switch would have to change.
func (x *proactive) changesDisconnected(p pathPlans) (changes bool) {
	for wave := range p.waves {
		x.eachMissing(p, wave, func(part multipath.Part, _ rule.Rule) { changes = changes || !x.up(part.Switch) })
	}
	return changes
}

// wave returns the tables that switches have once a wave of all plans is written. It leaves out
// switches that have them already.
func (x *proactive) wave(p pathPlans, wave int) map[openflow.DatapathID]pathTable {
	out := map[openflow.DatapathID]pathTable{}
	x.eachMissing(p, wave, func(part multipath.Part, r rule.Rule) {
		if out[part.Switch] == nil {
			if out[part.Switch] = maps.Clone(x.tables[part.Switch]); out[part.Switch] == nil {
				out[part.Switch] = pathTable{}
			}
		}
		out[part.Switch][r.Match] = pathRule{rule: r, group: part.Group}
	})
	return out
}

// removals returns the tables that switches have once all waves are written: without rules for
// hosts that no longer exist and, if the network is settled, without rules for hosts they have no
// path to. Rules that lead to an absent switch are kept.
func (x *proactive) removals(p pathPlans, settled bool) map[openflow.DatapathID]pathTable {
	type place struct {
		at openflow.DatapathID
		m  openflow.Match
	}
	planned, known := map[place]bool{}, map[openflow.Match]openflow.DatapathID{}
	routed := map[[2]openflow.DatapathID]bool{}
	for d, plan := range p.plans {
		for _, part := range slices.Concat(plan...) {
			routed[[2]openflow.DatapathID{part.Switch, d}] = true
			for _, r := range part.Rules {
				planned[place{part.Switch, r.Match}], known[r.Match] = true, d
			}
		}
	}
	out := map[openflow.DatapathID]pathTable{}
	for _, sw := range p.switches {
		if !x.up(sw) {
			continue
		}
		for m := range x.tables[sw] {
			d, ok := known[m]
			switch {
			case planned[place{sw, m}], p.absent[m], ok && !settled && !routed[[2]openflow.DatapathID{sw, d}]:
				continue
			case out[sw] == nil:
				out[sw] = maps.Clone(x.tables[sw])
			}
			delete(out[sw], m)
		}
	}
	return out
}

// apply sends tables to switches, all at once, and reports whether all switches have taken theirs.
func (x *proactive) apply(ctx context.Context, want map[openflow.DatapathID]pathTable) bool {
	sent := map[openflow.DatapathID]*pathsChange{}
	for sw, w := range want {
		c := &pathsChange{before: x.tables[sw], done: make(chan struct{})}
		sent[sw], x.tables[sw] = c, w
		p := w.program()
		x.changes.Go(func() {
			defer close(c.done)
			c.err = x.owner.Apply(ctx, pathsKey(sw), p, ApplyOptions{})
		})
	}
	deadline, all := newDeadline(), true
	for sw, c := range sent {
		if deadline.await(c.done) {
			all = x.recordResult(sw, c) && all
		} else {
			x.overdue[sw], all = c, false
		}
	}
	return all
}

// recordResult records the end of a change, and reports whether it succeeded. A change that failed
// was rolled back.
func (x *proactive) recordResult(sw openflow.DatapathID, c *pathsChange) bool {
	if c.err == nil {
		return true
	}
	x.tables[sw] = c.before
	if errors.Is(c.err, context.Canceled) || errors.Is(c.err, ErrSwitchDown) {
		return false
	}
	x.owner.installer.logLimiter.Warn(x.owner.installer.log, "writing rules by destination", "switch", sw, "error", c.err)
	if t := x.traits[sw]; t == nil || !t.learnRefusal(c.err, c.before) {
		x.paused[sw] = time.Now().Add(pauseFactor * x.cfg.RequestTimeout)
	}
	return false
}

// learnRefusal records which rule, or which type of group, a switch has refused, so that the next
// plan leaves it out. It returns false if nothing can be left out, or if the switch has an older
// version of the refused rule.
func (t *pathTraits) learnRefusal(err error, before pathTable) bool {
	var re *RuleError
	switch {
	case !errors.As(err, &re):
		return false
	case re.Reply != nil && re.Reply.Code.Type() == openflow.ErrorTypeGroupModFailed && !t.noSelectGroups:
		t.noSelectGroups = true
	case re.Rule == nil || re.Reply != nil && re.Reply.Code == openflow.FlowModTableFull || len(t.refused) >= maxRefusedRules:
		return false
	default:
		_, installed := before[re.Rule.Match]
		t.refused[re.Rule.Match] = !installed
		return !installed
	}
	return true
}

// collect records switches that have connected or disconnected, overdue changes that have ended,
// and pauses that are over.
func (x *proactive) collect(now time.Time) {
	for _, s := range x.tree.switches.list() {
		if t := x.traits[s.dpid]; t == nil || !t.upAt.Equal(s.upAt) {
			x.traits[s.dpid] = &pathTraits{upAt: s.upAt, refused: map[openflow.Match]bool{}, bucketsWatchPorts: strings.Contains(s.desc.Hardware, "Open vSwitch")}
		}
	}
	for sw, c := range x.overdue {
		select {
		case <-c.done:
			delete(x.overdue, sw)
			x.recordResult(sw, c)
		default:
		}
	}
	maps.DeleteFunc(x.paused, func(_ openflow.DatapathID, until time.Time) bool { return now.After(until) })
	for sw := range x.traits {
		if x.up(sw) {
			delete(x.disconnected, sw)
		} else if x.disconnected[sw].IsZero() {
			x.disconnected[sw] = now
		}
	}
	x.forgetDisconnected(now)
}

// maxDisconnected is the number of disconnected switches whose rules are kept. Anybody can claim
// to be a switch, so these must not accumulate.
const maxDisconnected = 512

// forgetDisconnected drops the rules of switches that have been disconnected for maxLinkMemoryAge,
// after which their links are forgotten too. If there are too many disconnected switches, it also
// drops the rules of those that have been disconnected for the longest time.
func (x *proactive) forgetDisconnected(now time.Time) {
	longest := slices.SortedFunc(maps.Keys(x.disconnected), func(a, b openflow.DatapathID) int { return x.disconnected[a].Compare(x.disconnected[b]) })
	for i, sw := range longest {
		if (len(longest)-i <= maxDisconnected && now.Sub(x.disconnected[sw]) < maxLinkMemoryAge) || x.overdue[sw] != nil {
			continue
		}
		x.owner.installer.ledger.Forget(x.owner.ledgerOwner, pathsKey(sw), sw)
		delete(x.tables, sw)
		delete(x.traits, sw)
		delete(x.disconnected, sw)
	}
}

// pathsKey returns the key of a switch's rules by destination.
func pathsKey(sw openflow.DatapathID) string { return fmt.Sprintf("to/%v", sw) }

// pathTable holds one switch's rules by destination.
type pathTable map[openflow.Match]pathRule

// pathRule is a rule with the group that it leads to, if any. Groups with the same number are
// identical.
type pathRule struct {
	rule  rule.Rule
	group *rule.Group
}

// has reports whether the table contains the rule unchanged.
func (t pathTable) has(r rule.Rule) bool {
	old, ok := t[r.Match]
	return ok && slices.Equal(old.rule.Actions, r.Actions)
}

// keep reserves the numbers of the table's groups, so that the planner does not use them for
// others.
func (t pathTable) keep(p *multipath.Planner) {
	t.groups(func(g *rule.Group) { p.Keep(g) })
}

// groups calls each for every group of the table once.
func (t pathTable) groups(each func(*rule.Group)) {
	seen := map[uint32]bool{}
	for _, r := range t {
		if r.group != nil && !seen[r.group.ID] {
			seen[r.group.ID] = true
			each(r.group)
		}
	}
}

// program returns the table as a program.
func (t pathTable) program() (out Program) {
	out.Rules = make([]rule.Rule, 0, len(t))
	for _, r := range t {
		out.Rules = append(out.Rules, r.rule)
	}
	t.groups(func(g *rule.Group) { out.Groups = append(out.Groups, *g) })
	return out
}
