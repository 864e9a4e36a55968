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

// Ledger records rules instead of writing them to switches. Its methods may be called concurrently.
// Set its fields before it is used.
type Ledger struct {
	// OnApply and OnRemove, if not nil, are called before an operation under a key. If one returns
	// an error, the operation fails with it. SetOnApply sets OnApply later.
	OnApply  func(ctx context.Context, key string) error
	OnRemove func(key string) error
	// Refuses holds the errors that EverySwitch returns, by switch.
	Refuses map[openflow.DatapathID]error

	mu       sync.Mutex
	programs map[string]network.Program
	atReady  map[string]network.Program
	bytes    map[string]uint64
	at       time.Time // when the counters were read
}

// NewLedger returns a ledger without rules.
func NewLedger() *Ledger {
	return &Ledger{programs: map[string]network.Program{}, bytes: map[string]uint64{}, at: time.Now()}
}

// Program returns the program that was last applied under a key.
func (l *Ledger) Program(key string) network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.programs[key]
}

// Programs returns the programs that are not empty, by key.
func (l *Ledger) Programs() map[string]network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.programs)
}

// Keys returns the keys of Programs, sorted.
func (l *Ledger) Keys() []string { return slices.Sorted(maps.Keys(l.Programs())) }

// Restart removes all rules, like the ledger of a controller that starts again.
func (l *Ledger) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs, l.atReady = map[string]network.Program{}, nil
}

// AtReady returns the programs that had been applied when Ready was called, or nil before.
func (l *Ledger) AtReady() map[string]network.Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.atReady
}

// Expire removes the rules under a key that have an idle timeout, as switches do with idle rules.
func (l *Ledger) Expire(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.programs[key]
	p.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r network.Rule) bool { return r.Idle > 0 })
	l.programs[key] = p
}

// Carry advances the counters by one second in which the rules of each key carried the given rate
// in bit/s.
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

// Apply implements kit.Ledger, as do the following methods.
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

// Remove removes the program of a key.
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

// EverySwitch records the program for the first switch.
func (l *Ledger) EverySwitch(_ context.Context, key string, program func(openflow.DatapathID) network.Program) map[openflow.DatapathID]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs[key] = program(1)
	return maps.Clone(l.Refuses)
}

// ReadCounters does nothing, since Carry sets the counters.
func (l *Ledger) ReadCounters(context.Context, openflow.DatapathID) error { return nil }

// GroupStats returns nothing.
func (l *Ledger) GroupStats(context.Context, openflow.DatapathID) ([]openflow.GroupStats, error) {
	return nil, nil
}

// Rules returns the rules under a key, with the counters that Carry has set.
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

// Ready records the present programs for AtReady.
func (l *Ledger) Ready() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atReady = maps.Clone(l.programs)
}
