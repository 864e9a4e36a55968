package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Reasons for which Plan refuses a program before anything is sent.
var (
	// ErrConflict means that another owner or key has declared a rule with the same table, priority
	// and match, or the same group or meter, on a switch.
	ErrConflict = errors.New("conflicts with what is already declared")
	// ErrInvalid means that the program can never be installed as it is.
	ErrInvalid = errors.New("invalid program")
)

// RuleError names the part of a program that was refused.
type RuleError struct {
	Switch openflow.DatapathID
	Rule   *rule.Rule // nil if the error is not about a rule
	Err    error
}

// Error returns the reason.
func (e *RuleError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RuleError) Unwrap() error { return e.Err }

// Adopted is the key under which the ledger holds rules that were found on a switch, until their
// owner declares them.
const Adopted = "adopted"

// Ledger holds the desired state of all switches. It is safe for concurrent use.
type Ledger struct {
	mu         sync.Mutex
	generation uint16
	owners     map[uint16]*Owner
	switches   map[openflow.DatapathID]*switchState
	// open holds the changes that are neither confirmed nor restored.
	open map[*Change]struct{}
	// comparisons holds the comparison in progress of each switch, and numComparisons counts all
	// that have begun.
	comparisons    map[openflow.DatapathID]*Comparison
	numComparisons uint64
}

// Owner is one declarer of rules, such as a service.
type Owner struct {
	Name string
	// Hash is the hash of the name that the owner's cookies contain.
	Hash     uint16
	adopt    bool
	ready    bool
	next     uint32
	programs map[string]*declared
}

// declared lists the rules, groups and meters that an owner wants under one key. It holds where they
// are; their content is in the states of the switches.
type declared struct {
	rules  []place[rule.Key]
	groups []place[uint32]
	meters []place[uint32]
	leased bool // whether any of the rules is leased
}

// place identifies a rule, group or meter on a switch.
type place[K comparable] struct {
	sw  openflow.DatapathID
	key K
}

// switchState holds what owners want on one switch, and what was found on it.
type switchState struct {
	layout rule.Layout
	rules  map[rule.Key]*Entry
	groups map[uint32]*item[rule.Group]
	meters map[uint32]*item[rule.Meter]
	// unclaimed holds rules found on the switch whose owner is not ready yet.
	unclaimed map[rule.Slot]*Reported
	// reading is the reconciliation in progress, or nil.
	reading *reading
}

// reading holds the keys of rules that were sent while a switch is read for its reconciliation.
type reading struct{ sent map[rule.Key]struct{} }

// item is a group or meter with the keys that declare it. An item without an owner was found on
// the switch and has not been claimed yet.
type item[T any] struct {
	value     T
	owner     *Owner
	keys      []string
	confirmed bool
}

// Entry is a rule in the ledger.
type Entry struct {
	Rule      rule.Rule
	Cookie    rule.Cookie
	Confirmed bool

	owner          *Owner
	keys           []string // keys under which the owner declares the rule
	packets, bytes uint64
	countersAt     time.Time
	seen           uint64 // number of the latest comparison in which the switch has listed it
}

// New returns an empty ledger whose cookies contain the generation.
func New(generation uint16) *Ledger {
	return &Ledger{
		generation: generation, owners: map[uint16]*Owner{}, switches: map[openflow.DatapathID]*switchState{},
		open: map[*Change]struct{}{}, comparisons: map[openflow.DatapathID]*Comparison{},
	}
}

// AddOwner registers an owner. If adopt is true, rules found on switches that the owner has not
// declared when it becomes ready are kept under the key Adopted. AddOwner fails if the name, or
// another name with the same hash, is taken.
func (l *Ledger) AddOwner(name string, adopt bool) (*Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := rule.OwnerHash(name)
	if o, taken := l.owners[h]; taken {
		return nil, fmt.Errorf("owner %q: %w: its cookies would be those of owner %q; choose another name", name, ErrConflict, o.Name)
	}
	o := &Owner{Name: name, Hash: h, adopt: adopt, programs: map[string]*declared{}}
	l.owners[h] = o
	return o, nil
}

// OwnerOf returns the owner of a cookie, or nil.
func (l *Ledger) OwnerOf(c rule.Cookie) *Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.Ours() {
		return nil
	}
	return l.owners[c.Owner()]
}

func (l *Ledger) stateOf(sw openflow.DatapathID) *switchState {
	s := l.switches[sw]
	if s == nil {
		s = &switchState{
			rules: map[rule.Key]*Entry{}, groups: map[uint32]*item[rule.Group]{},
			meters: map[uint32]*item[rule.Meter]{}, unclaimed: map[rule.Slot]*Reported{},
		}
		l.switches[sw] = s
	}
	return s
}

func (l *Ledger) cookie(o *Owner) rule.Cookie {
	o.next++
	return rule.MakeCookie(o.Hash, l.generation, o.next)
}

// Keys returns the keys under which the owner has declared something, sorted.
func (l *Ledger) Keys(o *Owner) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(o.programs))
}

// Rules returns the rules that the owner has declared under the key.
func (l *Ledger) Rules(o *Owner, key string) []rule.Installed {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := o.programs[key]
	if d == nil {
		return nil
	}
	out := make([]rule.Installed, 0, len(d.rules))
	for _, p := range d.rules {
		s := l.stateOf(p.sw)
		if e := s.rules[p.key]; e != nil {
			out = s.appendInstalled(out, e, key)
		}
	}
	return out
}

// SwitchRules returns every rule wanted on a switch, table by table, highest priority first.
func (l *Ledger) SwitchRules(sw openflow.DatapathID) []rule.Installed {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []rule.Installed
	if s := l.switches[sw]; s != nil {
		for _, e := range s.rules {
			out = s.appendInstalled(out, e, e.keys[0])
		}
	}
	slices.SortFunc(out, func(a, b rule.Installed) int {
		if a.Number != b.Number {
			return int(a.Number) - int(b.Number)
		}
		if a.Priority() != b.Priority() {
			return int(b.Priority()) - int(a.Priority())
		}
		return int(a.Cookie.Number()) - int(b.Cookie.Number())
	})
	return out
}

// appendInstalled appends an entry in the form that the switch has, if the switch has an entry
// for it.
func (s *switchState) appendInstalled(to []rule.Installed, e *Entry, key string) []rule.Installed {
	r, ok := s.wanted(e)
	if !ok {
		return to
	}
	return append(to, rule.Installed{
		Rule: *r, Number: s.layout.Number(r.Table()), Next: s.layout.Next(r), Cookie: e.Cookie, Owner: e.owner.Name, Name: key, Confirmed: e.Confirmed,
		Packets: e.packets, Bytes: e.bytes, CountersAt: e.countersAt,
	})
}

// Count records the counters of a rule that were read at the given time.
func (l *Ledger) Count(sw openflow.DatapathID, r *Reported, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.switches[sw]; s != nil {
		if e := s.at(r.Slot); e != nil && e.Cookie == r.Cookie {
			e.packets, e.bytes, e.countersAt = r.Packets, r.Bytes, at
		}
	}
}

// Removal is the consequence of a rule's removal by a switch.
type Removal uint8

// Consequences that Removed returns.
const (
	// RemovalUnknown means that the ledger does not hold the rule; nothing has to be done.
	RemovalUnknown Removal = iota
	// RemovalFinal means that the rule has timed out and has left the ledger.
	RemovalFinal
	// RemovalWanted means that the rule is still wanted; it has to be written again.
	RemovalWanted
)

// Removed records that a switch has removed a rule. A rule with timeouts leaves the ledger; a
// rule without them, or a leased one, is still wanted.
func (l *Ledger) Removed(sw openflow.DatapathID, at rule.Slot, c rule.Cookie) (*Owner, rule.Installed, Removal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.switches[sw]
	if s == nil {
		return nil, rule.Installed{}, RemovalUnknown
	}
	delete(s.unclaimed, at)
	e := s.at(at)
	if e == nil || e.Cookie != c {
		return nil, rule.Installed{}, RemovalUnknown
	}
	in := s.appendInstalled(nil, e, e.keys[0])[0]
	if !e.Rule.Expires() {
		return e.owner, in, RemovalWanted
	}
	l.forgetRule(s, sw, e)
	return e.owner, in, RemovalFinal
}

// forgetRule removes a rule that has expired from the ledger.
func (l *Ledger) forgetRule(s *switchState, sw openflow.DatapathID, e *Entry) {
	k := e.Rule.Key()
	l.excludeRule(sw, k)
	delete(s.rules, k)
	for _, key := range e.keys {
		e.owner.forget(key, place[rule.Key]{sw, k})
	}
}

// forget removes a rule from the program of a key, and the program if it is then empty.
func (o *Owner) forget(key string, p place[rule.Key]) {
	d := o.programs[key]
	if d == nil {
		return
	}
	d.rules = slices.DeleteFunc(d.rules, func(q place[rule.Key]) bool { return q == p })
	if len(d.rules)+len(d.groups)+len(d.meters) == 0 {
		delete(o.programs, key)
	}
}
