package ledger

import (
	"sync"

	"github.com/sluice-net/sluice/network/rule"
)

// Flows holds default forwarding's rules on one switch: for each flow where it
// goes, and the cookie it bears. It is bounded.
type Flows struct {
	mu    sync.Mutex
	limit int
	base  rule.Cookie // with rule number zero
	next  uint32
	rules map[rule.Flow]FlowRule
}

// FlowRule is what the rule of a flow does.
type FlowRule struct {
	Cookie rule.Cookie
	// Out is the port, perhaps a reserved one.
	Out uint32
	// Adopted marks a rule that was found on the switch after a restart.
	Adopted bool
}

// NewFlows makes an empty table for at most limit rules whose cookies bear
// owner and generation.
func NewFlows(limit int, owner, generation uint16) *Flows {
	return &Flows{limit: limit, base: rule.MakeCookie(owner, generation, 0), rules: map[rule.Flow]FlowRule{}}
}

// Put notes that the flow goes out by a port, and returns the cookie for its
// rule. It is false when the table is full.
func (t *Flows) Put(f rule.Flow, out uint32) (rule.Cookie, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, known := t.rules[f]
	if known && r.Out == out {
		return r.Cookie, true
	}
	if !known && len(t.rules) >= t.limit {
		return 0, false
	}
	if !known {
		t.next = t.next%0xffffff + 1
		r.Cookie = t.base | rule.Cookie(t.next)
	}
	r.Out, r.Adopted = out, false
	t.rules[f] = r
	return r.Cookie, true
}

// Adopt takes in a rule that was found on the switch. It is false when the
// table is full.
func (t *Flows) Adopt(f rule.Flow, r FlowRule) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.rules[f]; !known && len(t.rules) >= t.limit {
		return false
	}
	r.Adopted = true
	t.rules[f] = r
	return true
}

// Get finds the rule of a flow.
func (t *Flows) Get(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rules[f]
	return r, ok
}

// Delete forgets the rule of a flow.
func (t *Flows) Delete(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rules[f]
	delete(t.rules, f)
	return r, ok
}

// Len is the number of rules.
func (t *Flows) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rules)
}

// Select lists the flows that pick chooses. pick must not call back.
func (t *Flows) Select(pick func(rule.Flow, FlowRule) bool) []rule.Flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []rule.Flow
	for f, r := range t.rules {
		if pick(f, r) {
			out = append(out, f)
		}
	}
	return out
}

// Each calls f for every rule. f must not call back.
func (t *Flows) Each(f func(rule.Flow, FlowRule)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.rules {
		f(k, r)
	}
}
