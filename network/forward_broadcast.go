package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// broadcastTree maintains the rules of the broadcast tree on all switches.
type broadcastTree struct {
	cfg      *Config
	switches *registry
	core     *Owner
	repairs  *repairs
	view     *atomic.Pointer[forward.View]

	installed map[openflow.DatapathID][]rule.Rule // installed on the switches
	// overdue holds the changes of switches that have not confirmed in time. Meanwhile the others
	// use a tree without these switches.
	overdue map[openflow.DatapathID]*treeChange
	changes sync.WaitGroup
}

// run keeps the tree's rules up to date until ctx ends. It waits for the barriers of a switch only
// until a deadline, so that a slow switch does not delay the others.
func (b *broadcastTree) run(ctx context.Context) {
	b.installed, b.overdue = map[openflow.DatapathID][]rule.Rule{}, map[openflow.DatapathID]*treeChange{}
	defer b.changes.Wait()
	var retry <-chan time.Time
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.repairs.tree:
		case <-retry:
		}
		retry = nil
		if !ready && !b.settled() {
			retry = time.After(b.cfg.DiscoveryInterval / 2)
			continue
		}
		began := time.Now()
		again, err := b.repair(ctx)
		if err != nil && ctx.Err() == nil {
			b.core.installer.logLimiter.Warn(b.core.installer.log, "writing the rules of the broadcast tree", "error", err)
			again = true
		}
		if again {
			retry = time.After(b.cfg.DiscoveryInterval / 2)
		}
		if !ready {
			ready = true
			b.core.Ready()
		}
		if tasks.Sleep(ctx, repairPause(time.Since(began))) != nil {
			return
		}
	}
}

// settled reports whether the links that existed before the controller's start should have been
// found. Until then the tree's rules from before a restart are left alone, and a new network floods
// through the controller.
func (b *broadcastTree) settled() bool {
	var oldest, youngest time.Duration
	for i, s := range b.switches.list() {
		age := time.Since(s.upAt)
		oldest = max(oldest, age)
		if i == 0 || age < youngest {
			youngest = age
		}
	}
	// One switch that reconnects repeatedly must not delay all the others.
	return youngest >= b.settleTime() || oldest >= 5*b.settleTime()
}

// settleTime returns how long after a switch has come up its links are assumed to be known.
func (b *broadcastTree) settleTime() time.Duration {
	return b.cfg.DiscoverySettle + 2*b.cfg.DiscoveryInterval
}

// treeChange is a change of one switch's rules.
type treeChange struct {
	rules []rule.Rule
	done  chan struct{} // closed when err is set
	err   error
}

// repair moves the broadcast rules from the old tree to the current one. It first removes the rules
// and outputs that are not in both, so that no loop closes in between. again reports that some
// switches have yet to settle, or are overdue. A switch that refuses its rules keeps those common to
// both trees, and does not delay the others.
func (b *broadcastTree) repair(ctx context.Context) (again bool, err error) {
	err = b.collectOverdue()
	for {
		late := len(b.overdue)
		want, unsettled := b.wanted()
		again = unsettled || late > 0
		if len(b.installed) > 0 {
			shrunk := groupBySwitch(forward.Shrink(mergeRules(b.installed), want))
			for sw := range b.installed {
				if _, ok := shrunk[sw]; !ok {
					shrunk[sw] = nil
				}
			}
			err = errors.Join(err, b.apply(ctx, shrunk))
		}
		// Adding rules before all switches have removed theirs could close a loop. A loop through
		// an overdue switch is impossible, because the others do not use it.
		if err != nil {
			return again, err
		}
		if len(b.overdue) > late {
			continue
		}
		err = b.apply(ctx, groupBySwitch(want))
		return again || len(b.overdue) > 0, err
	}
}

// wanted returns the rules of the current tree, which leaves out overdue switches. unsettled reports
// whether some switches keep their old rules for now.
func (b *broadcastTree) wanted() (want rule.Program, unsettled bool) {
	if b.cfg.DisableForwarding {
		return want, false
	}
	v := *b.view.Load()
	if len(b.overdue) > 0 {
		here := slices.DeleteFunc(slices.Clone(v.Topology.Switches), func(d openflow.DatapathID) bool { return b.overdue[d] != nil })
		v.Topology = topology.New(v.Topology.Version, here, v.Topology.Links)
	}
	return b.keepUnsettled(mergeRules(b.installed), v.BaseProgram())
}

// collectOverdue records the changes that overdue switches have confirmed meanwhile.
func (b *broadcastTree) collectOverdue() (errs error) {
	for sw, c := range b.overdue {
		select {
		case <-c.done:
			delete(b.overdue, sw)
			errs = errors.Join(errs, b.recordResult(sw, c))
		default:
		}
	}
	return errs
}

// recordResult updates installed with a change that has ended.
func (b *broadcastTree) recordResult(sw openflow.DatapathID, c *treeChange) error {
	if c.err != nil {
		return c.err
	}
	if b.installed[sw] = c.rules; len(c.rules) == 0 {
		delete(b.installed, sw)
	}
	return nil
}

// apply declares the rules of each switch that is not overdue under a key of its own, all at once,
// and waits for them. Switches that do not confirm in time become overdue.
func (b *broadcastTree) apply(ctx context.Context, want map[openflow.DatapathID][]rule.Rule) (errs error) {
	sent := map[openflow.DatapathID]*treeChange{}
	for sw, rules := range want {
		if b.overdue[sw] != nil {
			continue
		}
		c := &treeChange{rules: rules, done: make(chan struct{})}
		sent[sw] = c
		b.changes.Go(func() {
			defer close(c.done)
			c.err = b.core.Apply(ctx, treeKey(sw), Program{Rules: rules}, ApplyOptions{AllowDown: true})
		})
	}
	p := newDeadline()
	for sw, c := range sent {
		if p.await(c.done) {
			errs = errors.Join(errs, b.recordResult(sw, c))
		} else {
			b.overdue[sw] = c
		}
	}
	return errs
}

// treeKey returns the key under which the core declares a switch's rules of the broadcast tree, and
// its rules that send packets which reveal hosts to the controller.
func treeKey(sw openflow.DatapathID) string { return fmt.Sprintf("base/%v", sw) }

// groupBySwitch returns the program's rules by switch.
func groupBySwitch(p rule.Program) map[openflow.DatapathID][]rule.Rule {
	out := map[openflow.DatapathID][]rule.Rule{}
	for _, r := range p.Rules {
		out[r.Switch] = append(out[r.Switch], r)
	}
	return out
}

// mergeRules returns the rules of all switches as one program.
func mergeRules(m map[openflow.DatapathID][]rule.Rule) rule.Program {
	var p rule.Program
	for _, rules := range m {
		p.Rules = append(p.Rules, rules...)
	}
	return p
}

// keepUnsettled keeps the old rules of switches whose connection was lost a moment ago, or whose
// links have not been found again since: losing the connection must not interrupt a switch's
// traffic. The old rules are kept only until shortly before the neighbours' ports count as edge
// ports; otherwise a loop could close.
func (b *broadcastTree) keepUnsettled(old, now rule.Program) (kept rule.Program, again bool) {
	unsettled := map[openflow.DatapathID]bool{}
	keep := func(d openflow.DatapathID) bool {
		u, known := unsettled[d]
		if !known {
			u = b.unsettled(d)
			unsettled[d] = u
			again = again || u
		}
		return u
	}
	for _, r := range old.Rules {
		if keep(r.Switch) {
			kept.Rules = append(kept.Rules, r)
		}
	}
	for _, r := range now.Rules {
		if !keep(r.Switch) {
			kept.Rules = append(kept.Rules, r)
		}
	}
	return kept, again
}

// unsettled reports whether a switch has lost its connection, or has connected, a moment ago. Its
// links may then exist although they are not known.
func (b *broadcastTree) unsettled(d openflow.DatapathID) bool {
	if s, up := b.switches.get(d); up {
		return time.Since(s.upAt) < b.settleTime()
	}
	return b.repairs.recentlyLeft(d, b.cfg.DiscoveryTimeout)
}
