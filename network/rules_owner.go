package network

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// OwnerOptions configure an owner.
type OwnerOptions struct {
	// Adopt keeps rules with the owner's cookie that are found on a switch after a restart. They
	// enter the ledger under the key ledger.Adopted instead of being deleted when the owner is
	// ready.
	Adopt bool
	// OnRemoved, if set, is called for each rule with NotifyRemoved that a switch has removed
	// after a timeout. It runs on a goroutine of the switch and must not block.
	OnRemoved func(Removed)
}

// Owner declares rules. Its methods may be called concurrently; calls for the same key are
// executed one after the other.
type Owner struct {
	installer   *installer
	name        string
	opts        OwnerOptions
	ledgerOwner *ledger.Owner

	mu        sync.Mutex
	busy      map[string]chan struct{} // keys that are being changed; closed when the change ends
	perSwitch map[string]func(openflow.DatapathID) Program
}

// Owner registers an owner. It must be called before the first switch connects, because rules with
// the cookie of an unknown owner are removed as orphaned.
func (n *Network) Owner(name string, opts OwnerOptions) (*Owner, error) {
	return n.owners.add(name, opts)
}

// Name returns the owner's name.
func (o *Owner) Name() string { return o.name }

// GroupID returns a group number that is made from the owner's name and a number of the owner's
// choice. It differs from the group numbers of every owner whose hash has other low 8 bits.
func (o *Owner) GroupID(number uint16) uint32 { return rule.GroupID(o.ledgerOwner.Hash, number) }

// Keys returns the keys under which something is declared.
func (o *Owner) Keys() []string { return o.installer.ledger.Keys(o.ledgerOwner) }

// Rules returns the rules declared under a key.
func (o *Owner) Rules(key string) []InstalledRule {
	return o.installer.ledger.Rules(o.ledgerOwner, key)
}

// Shadowed returns, for each list of matches in of, the rules of other services that would shadow
// rules of the owner with these matches, at this stage and offset. A rule shadows another one if it
// comes first for some of the same packets, on any switch. If there are very many rules, not all of
// them are checked.
func (o *Owner) Shadowed(s Stage, offset uint16, of [][]openflow.Match) [][]rule.Shadowing {
	return o.installer.ledger.Shadowed(o.ledgerOwner, s, offset, of)
}

// Ready ends the owner's start-up: it has declared everything again that it wants to keep from
// before a restart. Until then rules with its cookie are left alone on every switch; now those
// that nobody has declared are adopted or removed.
func (o *Owner) Ready() {
	for _, st := range splitBySwitch(o.installer.ledger.Ready(o.ledgerOwner), false) {
		if err := o.installer.enqueue(st, true); err != nil {
			o.installer.log.Warn("removing orphaned rules", "owner", o.name, "switch", st.sw, "error", err)
		}
	}
}

// Apply makes p the set of rules declared under key. It sends only the difference to what was
// declared before, and returns when every switch concerned has confirmed by a barrier. If a switch
// refuses or disconnects, Apply restores the previous declaration everywhere and returns a
// *RuleError.
func (o *Owner) Apply(ctx context.Context, key string, p Program, opts ApplyOptions) error {
	release, err := o.lock(ctx, key)
	if err != nil {
		return fmt.Errorf("%s/%s: waiting for an earlier change: %w", o.name, key, err)
	}
	defer release()
	return o.apply(ctx, key, p, opts)
}

// apply is Apply for a caller that holds the key's lock.
func (o *Owner) apply(ctx context.Context, key string, p Program, opts ApplyOptions) error {
	if err := o.check(key, &p, opts); err != nil {
		return err
	}
	c, err := o.installer.ledger.Plan(o.ledgerOwner, key, p)
	if err != nil {
		return o.planError(key, err)
	}
	if err := o.installer.execute(ctx, c, opts); err != nil {
		o.installer.rollBack(c.Rollback(), opts.Waves)
		c.Restored()
		var re *RuleError
		if errors.As(err, &re) {
			re.Owner, re.Key = o.name, key
			return re
		}
		return fmt.Errorf("%s/%s: %w", o.name, key, err)
	}
	c.Confirm()
	return nil
}

// Remove deletes everything declared under key. Switches that are not connected are cleaned up
// when they connect.
func (o *Owner) Remove(ctx context.Context, key string) error {
	return o.Apply(ctx, key, Program{}, ApplyOptions{AllowDown: true})
}

// lock waits for the lock of a key.
func (o *Owner) lock(ctx context.Context, key string) (release func(), err error) {
	for {
		release, wait := o.tryLock(key)
		if release != nil {
			return release, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock takes the lock of a key if it is free; otherwise wait is closed when the lock is
// released.
func (o *Owner) tryLock(key string) (release func(), wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if wait, taken := o.busy[key]; taken {
		return nil, wait
	}
	done := make(chan struct{})
	o.busy[key] = done
	return func() {
		o.mu.Lock()
		delete(o.busy, key)
		o.mu.Unlock()
		close(done)
	}, nil
}

// check returns an error if p has rules for switches that are not connected, unless opts allows
// that.
func (o *Owner) check(key string, p *Program, opts ApplyOptions) error {
	if opts.AllowDown {
		return nil
	}
	down := func(d openflow.DatapathID, r *rule.Rule) error {
		if o.installer.switches.accepting(d) != nil {
			return nil
		}
		return &RuleError{Owner: o.name, Key: key, Switch: d, Rule: r, Err: ErrSwitchDown}
	}
	var errs error
	for i := range p.Rules {
		errs = errors.Join(errs, down(p.Rules[i].Switch, &p.Rules[i]))
		if errs != nil {
			break
		}
	}
	for i := range p.Groups {
		errs = errors.Join(errs, down(p.Groups[i].Switch, nil))
	}
	for i := range p.Meters {
		errs = errors.Join(errs, down(p.Meters[i].Switch, nil))
	}
	return errs
}

// planError adds owner and key to an error of the ledger.
func (o *Owner) planError(key string, err error) error {
	re := &RuleError{Owner: o.name, Key: key, Err: err}
	var le *ledger.RuleError
	if errors.As(err, &le) {
		re.Switch, re.Rule = le.Switch, le.Rule
	}
	return re
}
