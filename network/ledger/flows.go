package ledger

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Flows holds default forwarding's rules on one switch: for each flow where it
// goes, and the cookie it bears. It is bounded.
type Flows struct {
	mu    sync.Mutex
	limit int
	base  rule.Cookie // with rule number zero
	next  uint32
	rules map[flowKey]FlowRule
}

// FlowRule is what the rule of a flow does.
type FlowRule struct {
	Cookie rule.Cookie
	// Out is the port, perhaps a reserved one.
	Out uint32
	// Adopted marks a rule that was found on the switch after a restart.
	Adopted bool
	written time.Time // when it was last due to be written
}

// writeAgain is how long a rule that has been written is not written again for a packet
// that comes up for want of it: it is on its way, and so may the packets be that came
// before it.
const writeAgain = 100 * time.Millisecond

// flowKey is a flow in three words: a key without padding is hashed in one go.
type flowKey struct{ port, src, dst uint64 }

func keyOf(f *rule.Flow) flowKey {
	return flowKey{uint64(f.InPort)<<16 | uint64(f.VLAN), pack(f.Src), pack(f.Dst)}
}

func pack(m openflow.MAC) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

func unpack(v uint64) openflow.MAC {
	return openflow.MAC{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

func (k flowKey) flow() rule.Flow {
	return rule.Flow{InPort: uint32(k.port >> 16), VLAN: uint16(k.port), Src: unpack(k.src), Dst: unpack(k.dst)}
}

// NewFlows makes an empty table for at most limit rules whose cookies bear
// owner and generation.
func NewFlows(limit int, owner, generation uint16) *Flows {
	return &Flows{limit: limit, base: rule.MakeCookie(owner, generation, 0), rules: map[flowKey]FlowRule{}}
}

// Put notes that the flow goes out by a port, and returns the cookie for its
// rule. It is false when nothing is to be written: the table is full, or just this
// was written a moment ago.
func (t *Flows) Put(f rule.Flow, out uint32, now time.Time) (rule.Cookie, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := keyOf(&f)
	r, known := t.rules[k]
	if known && r.Out == out && now.Sub(r.written) < writeAgain {
		return 0, false
	}
	if !known && len(t.rules) >= t.limit {
		return 0, false
	}
	if !known {
		t.next = t.next%0xffffff + 1
		r.Cookie = t.base | rule.Cookie(t.next)
	}
	r.Adopted = r.Adopted && r.Out == out
	r.Out, r.written = out, now
	t.rules[k] = r
	return r.Cookie, true
}

// Adopt takes in a rule that was found on the switch. It is false when the
// table is full.
func (t *Flows) Adopt(f rule.Flow, r FlowRule) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.rules[keyOf(&f)]; !known && len(t.rules) >= t.limit {
		return false
	}
	r.Adopted = true
	t.rules[keyOf(&f)] = r
	return true
}

// Get finds the rule of a flow.
func (t *Flows) Get(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rules[keyOf(&f)]
	return r, ok
}

// Delete forgets the rule of a flow.
func (t *Flows) Delete(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rules[keyOf(&f)]
	delete(t.rules, keyOf(&f))
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
	for k, r := range t.rules {
		if f := k.flow(); pick(f, r) {
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
		f(k.flow(), r)
	}
}
