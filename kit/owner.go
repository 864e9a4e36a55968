package kit

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Owner is an owner of rules that several parts of one service share, for example one [Reconciler]
// for each kind of item. Each [Part] has keys of its own. The rules from before a restart stay until
// every part is ready.
type Owner struct {
	ledger  Ledger
	groupID func(uint16) uint32

	mu      sync.Mutex
	parts   map[string]*Part
	unready int
}

// NewOwner registers an owner of rules with a network, before the first switch connects.
func NewOwner(n interface {
	Owner(name string, opts network.OwnerOptions) (*network.Owner, error)
}, name string,
) (*Owner, error) {
	o := &Owner{parts: map[string]*Part{}}
	owner, err := n.Owner(name, network.OwnerOptions{OnRemoved: o.removed})
	if err != nil {
		return nil, err
	}
	o.ledger, o.groupID = owner, owner.GroupID
	return o, nil
}

// GroupID returns the OpenFlow group identifier for a number of this owner. Other owners get other
// identifiers for the same number. The parts of the owner agree on which of them uses which number.
func (o *Owner) GroupID(number uint16) uint32 { return o.groupID(number) }

// Part adds a part. Add all parts before the first of them is ready. Part panics if the name is
// taken or has a slash.
func (o *Owner) Part(name string) *Part {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, taken := o.parts[name]; taken || strings.Contains(name, "/") {
		panic(fmt.Sprintf("service: part %q of an owner of rules: taken, or with a slash", name))
	}
	p := &Part{Ledger: o.ledger, owner: o, prefix: name + "/"}
	o.parts[name] = p
	o.unready++
	return p
}

// removed passes a removed rule to the OnRemoved of its part.
func (o *Owner) removed(r network.Removed) {
	name, key, _ := strings.Cut(r.Name, "/")
	o.mu.Lock()
	p := o.parts[name]
	o.mu.Unlock()
	if p != nil && p.OnRemoved != nil {
		r.Name = key
		p.OnRemoved(r)
	}
}

// Part is a part of an owner's rules. It implements [Ledger].
type Part struct {
	Ledger
	// OnRemoved, if not nil, is called for each of the part's rules with NotifyRemoved that a
	// switch has removed by a timeout. It runs on the switch's goroutine and must not block. Set
	// it before the network runs.
	OnRemoved func(network.Removed)

	owner  *Owner
	prefix string
	ready  sync.Once
}

// Apply replaces the program that the part has declared under a key.
func (p *Part) Apply(ctx context.Context, key string, program network.Program, opts network.ApplyOptions) error {
	return p.Ledger.Apply(ctx, p.prefix+key, program, opts)
}

// Remove removes the rules that the part has declared under a key.
func (p *Part) Remove(ctx context.Context, key string) error {
	return p.Ledger.Remove(ctx, p.prefix+key)
}

// EverySwitch declares a program for every switch under a key.
func (p *Part) EverySwitch(ctx context.Context, key string, program func(openflow.DatapathID) network.Program) map[openflow.DatapathID]error {
	return p.Ledger.EverySwitch(ctx, p.prefix+key, program)
}

// Rules lists the rules that the part has declared under a key.
func (p *Part) Rules(key string) []network.InstalledRule {
	rules := p.Ledger.Rules(p.prefix + key)
	for i := range rules {
		rules[i].Name = key
	}
	return rules
}

// Ready tells the owner that the part has declared all rules that it wants to keep from before a
// restart.
func (p *Part) Ready() {
	p.ready.Do(func() {
		o := p.owner
		o.mu.Lock()
		o.unready--
		all := o.unready == 0
		o.mu.Unlock()
		if all {
			p.Ledger.Ready()
		}
	})
}
