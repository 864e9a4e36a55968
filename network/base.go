package network

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// runBase is the goroutine that keeps the broadcast tree. It waits for barriers,
// so one switch that is stuck holds it up.
func (n *Network) runBase(ctx context.Context) {
	var flood rule.Program
	var retry <-chan time.Time
	var warnings lograte.Limit
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.repairs.base:
		case <-retry:
		}
		retry = nil
		if !ready && !n.settled() {
			retry = time.After(n.cfg.DiscoveryInterval / 2)
			continue
		}
		now, again, err := n.repairBase(ctx, flood)
		if err != nil && ctx.Err() == nil {
			warnings.Warn(n.log, "writing the rules of the broadcast tree", "error", err)
			again = true
		}
		if again {
			retry = time.After(n.cfg.DiscoveryInterval / 2)
		}
		flood = now
		if !ready {
			ready = true
			n.core.Ready()
		}
	}
}

// settled reports whether the links have been found that were there before. Until
// then rules of the broadcast tree from before a restart are left alone, and a
// fresh network floods by way of the controller.
func (n *Network) settled() bool {
	var oldest, youngest time.Duration
	for i, s := range n.Switches() {
		age := time.Since(s.upAt)
		oldest = max(oldest, age)
		if i == 0 || age < youngest {
			youngest = age
		}
	}
	// One switch that comes and goes must not hold up all the others.
	return youngest >= n.settling() || oldest >= 5*n.settling()
}

// settling is how long after a switch has come up its links are taken to be known.
func (n *Network) settling() time.Duration { return n.cfg.DiscoverySettle + 2*n.cfg.DiscoveryInterval }

// repairBase moves the broadcast rules from the old tree to the present one, by
// way of what both have in common, so that no loop closes in between. again says
// that some switches have still to settle. A switch that refuses its rules keeps
// what is in common, and holds up no other.
func (n *Network) repairBase(ctx context.Context, old rule.Program) (now rule.Program, again bool, err error) {
	if !n.cfg.DisableForwarding {
		now, again = n.keepUnsettled(old, n.view.Load().BaseProgram())
	}
	have := perSwitch(old)
	if len(old.Rules) > 0 {
		shrunk := perSwitch(forward.Shrink(old, now))
		for sw := range have {
			if _, some := shrunk[sw]; !some {
				shrunk[sw] = nil
			}
		}
		// Growing before all have shrunk could close a loop.
		if err := n.applyBase(ctx, have, shrunk); err != nil {
			return merge(have), again, err
		}
	}
	err = n.applyBase(ctx, have, perSwitch(now))
	return merge(have), again, err
}

// applyBase declares the base rules of each switch under a key of its own, all at
// once. have is brought up to date with what was taken.
func (n *Network) applyBase(ctx context.Context, have, want map[openflow.DatapathID][]rule.Rule) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs error
	for sw, rules := range want {
		wg.Go(func() {
			err := n.core.Apply(ctx, baseKey(sw), Program{Rules: rules}, ApplyOptions{AllowDown: true})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = errors.Join(errs, err)
				return
			}
			if have[sw] = rules; len(rules) == 0 {
				delete(have, sw)
			}
		})
	}
	wg.Wait()
	return errs
}

// baseKey is the core's key for a switch's rules of the broadcast tree, and those
// by which hosts are learned.
func baseKey(sw openflow.DatapathID) string { return fmt.Sprintf("base/%v", sw) }

func perSwitch(p rule.Program) map[openflow.DatapathID][]rule.Rule {
	out := map[openflow.DatapathID][]rule.Rule{}
	for _, r := range p.Rules {
		out[r.Switch] = append(out[r.Switch], r)
	}
	return out
}

func merge(m map[openflow.DatapathID][]rule.Rule) rule.Program {
	var p rule.Program
	for _, rules := range m {
		p.Rules = append(p.Rules, rules...)
	}
	return p
}

// keepUnsettled leaves the rules of switches as they are whose connection was
// lost a moment ago, or whose links have not been found again since: a lost
// connection must not interrupt what the switch does. It lasts no longer than
// the neighbours' ports take to count as edge ports, or a loop could close.
func (n *Network) keepUnsettled(old, now rule.Program) (kept rule.Program, again bool) {
	up := *n.switches.Load()
	unsettled := map[openflow.DatapathID]bool{}
	keep := func(d openflow.DatapathID) bool {
		u, known := unsettled[d]
		if !known {
			if s := up[d]; s != nil {
				u = time.Since(s.upAt) < n.settling()
			} else {
				u = n.repairs.awaited(d, n.cfg.DiscoveryTimeout)
			}
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
