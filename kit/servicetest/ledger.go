package servicetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Ledger keeps rules as the ledger does that writes them. Its methods may be called
// concurrently; set its fields while nothing is applied.
type Ledger struct {
	// OnApply and OnRemove, if not nil, are called before something is done under a key;
	// an error refuses it. They are set before the ledger is used; SetOnApply sets one later.
	OnApply  func(ctx context.Context, key string) error
	OnRemove func(key string) error
	// Refuses is why switches do not take what is declared for every switch.
	Refuses map[openflow.DatapathID]error

	mu       sync.Mutex
	programs map[string]network.Program
	atReady  map[string]network.Program
	bytes    map[string]uint64
	at       time.Time // of the counters
}

// NewLedger returns one without rules.
func NewLedger() *Ledger {
	return &Ledger{programs: map[string]network.Program{}, bytes: map[string]uint64{}, at: time.Now()}
}

// Program is what was applied last under a key.
func (l *Ledger) Program(key string) network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.programs[key]
}

// Programs are those by key that have something.
func (l *Ledger) Programs() map[string]network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.programs)
}

// Keys are those of Programs, in order.
func (l *Ledger) Keys() []string { return slices.Sorted(maps.Keys(l.Programs())) }

// Restart forgets all rules, as the ledger does of a controller that starts again.
func (l *Ledger) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs, l.atReady = map[string]network.Program{}, nil
}

// AtReady is what had been declared when Ready was called; nil before.
func (l *Ledger) AtReady() map[string]network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.atReady
}

// Expire removes the rules under a key that have an idle timeout, as switches do when nothing has
// come for them.
func (l *Ledger) Expire(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.programs[key]
	p.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r network.Rule) bool { return r.Idle > 0 })
	l.programs[key] = p
}

// Carry has the rules of keys carry for a second, each so many bit/s.
func (l *Ledger) Carry(rates map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = l.at.Add(time.Second)
	for key, rate := range rates {
		l.bytes[key] += rate / 8
	}
}

// SetOnApply sets OnApply while the ledger is in use.
func (l *Ledger) SetOnApply(f func(ctx context.Context, key string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.OnApply = f
}

// Apply implements kit.Ledger, as do the following.
func (l *Ledger) Apply(ctx context.Context, key string, p network.Program, _ network.ApplyOptions) error {
	l.mu.Lock()
	before := l.OnApply
	l.mu.Unlock()
	if before != nil {
		if err := before(ctx, key); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs[key] = p
	if len(p.Rules)+len(p.Groups)+len(p.Meters) == 0 {
		delete(l.programs, key)
	}
	return nil
}

// Remove takes a program away.
func (l *Ledger) Remove(_ context.Context, key string) error {
	if l.OnRemove != nil {
		if err := l.OnRemove(key); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.programs, key)
	return nil
}

// EverySwitch keeps what is for the first switch.
func (l *Ledger) EverySwitch(_ context.Context, key string, program func(openflow.DatapathID) network.Program) map[openflow.DatapathID]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs[key] = program(1)
	return maps.Clone(l.Refuses)
}

// ReadCounters does nothing: Carry has them grow.
func (l *Ledger) ReadCounters(context.Context, openflow.DatapathID) error { return nil }

// GroupStats are none.
func (l *Ledger) GroupStats(context.Context, openflow.DatapathID) ([]openflow.GroupStats, error) {
	return nil, nil
}

// Rules are those under a key, with counters as Carry says.
func (l *Ledger) Rules(key string) (out []network.InstalledRule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.programs[key].Rules {
		out = append(out, network.InstalledRule{Rule: x, Bytes: l.bytes[key], CountersAt: l.at})
	}
	return out
}

// Shadowed reports nothing.
func (l *Ledger) Shadowed(_ network.Stage, _ uint16, of [][]openflow.Match) [][]rule.Shadowing {
	return make([][]rule.Shadowing, len(of))
}

// Ready is what AtReady tells of.
func (l *Ledger) Ready() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atReady = maps.Clone(l.programs)
}
