package ledger

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Flows holds default forwarding's rules on one switch: the output port and cookie of each flow.
// It holds a limited number of rules, and is safe for concurrent use.
type Flows struct {
	mu    sync.Mutex
	limit int
	base  rule.Cookie // a cookie with rule number zero
	next  uint32
	rules map[flowKey]FlowRule
	watch *FlowWatch // the latest watch, or nil
}

// FlowWatch holds the flows that have changed since it began.
type FlowWatch struct{ changed map[flowKey]struct{} }

// FlowRule is the output port and cookie of a flow's rule.
type FlowRule struct {
	Cookie rule.Cookie
	// Out is the output port, which may be a reserved port.
	Out uint32
	// Adopted is true for a rule that was found on the switch after a restart of the controller.
	Adopted bool
	written time.Time // when Put last asked for it to be written
}

// writeAgain is the shortest time after which Put asks for the same rule to be written again.
// Packets that reach the controller before that were sent before the rule took effect.
const writeAgain = 100 * time.Millisecond

// flowKey holds a flow in three words: a key without padding is hashed in one step.
type flowKey struct{ port, src, dst uint64 }

func makeFlowKey(f *rule.Flow) flowKey {
	return flowKey{uint64(f.InPort)<<16 | uint64(f.VLAN), packMAC(f.Src), packMAC(f.Dst)}
}

func packMAC(m openflow.MAC) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

func unpackMAC(v uint64) openflow.MAC {
	return openflow.MAC{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

func (k flowKey) flow() rule.Flow {
	return rule.Flow{InPort: uint32(k.port >> 16), VLAN: uint16(k.port), Src: unpackMAC(k.src), Dst: unpackMAC(k.dst)}
}

// NewFlows returns an empty table of at most limit rules, whose cookies contain owner and
// generation.
func NewFlows(limit int, owner, generation uint16) *Flows {
	return &Flows{limit: limit, base: rule.MakeCookie(owner, generation, 0), rules: map[flowKey]FlowRule{}}
}

// Put records that a flow goes out by a port, and returns the cookie for its rule. It returns
// false if nothing has to be written, because the table is full or the same rule was written a
// moment ago.
func (t *Flows) Put(f rule.Flow, out uint32, now time.Time) (rule.Cookie, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := makeFlowKey(&f)
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
	t.noteChange(k)
	return r.Cookie, true
}

// Adopt records a rule that was found on the switch. It returns false if the table is full.
func (t *Flows) Adopt(f rule.Flow, r FlowRule) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.rules[makeFlowKey(&f)]; !known && len(t.rules) >= t.limit {
		return false
	}
	r.Adopted = true
	t.rules[makeFlowKey(&f)] = r
	return true
}

// Watch begins to record the flows that change, until Compare is called with the result. It
// replaces an earlier watch.
func (t *Flows) Watch() *FlowWatch {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = &FlowWatch{changed: map[flowKey]struct{}{}}
	return t.watch
}

// noteChange records that a flow has changed. The mutex is held.
func (t *Flows) noteChange(k flowKey) {
	if t.watch != nil {
		t.watch.changed[k] = struct{}{}
	}
}

// FoundFlow is a rule of default forwarding that a switch has listed.
type FoundFlow struct {
	rule.Flow
	FlowRule
}

// Compare compares the flows with those that the switch has listed since the watch began. It
// leaves out flows that have changed since. It removes the missing ones, which have expired or
// were deleted, and the changed ones, whose rules have another output. The switch must delete the
// rules of changed and foreign flows; foreign flows are not in the table.
func (t *Flows) Compare(w *FlowWatch, found []FoundFlow) (missing []rule.Flow, changed, foreign []FoundFlow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch == w {
		t.watch = nil
	}
	seen := make(map[flowKey]struct{}, len(found))
	for _, f := range found {
		k := makeFlowKey(&f.Flow)
		seen[k] = struct{}{}
		r, known := t.rules[k]
		_, isChanged := w.changed[k]
		switch {
		case isChanged:
		case !known:
			foreign = append(foreign, f)
		case r.Out != f.Out:
			changed = append(changed, f)
			delete(t.rules, k)
		case r.Cookie != f.Cookie:
			r.Cookie = f.Cookie
			t.rules[k] = r
		}
	}
	for k := range t.rules {
		_, isSeen := seen[k]
		_, isChanged := w.changed[k]
		if !isSeen && !isChanged {
			missing = append(missing, k.flow())
			delete(t.rules, k)
		}
	}
	return missing, changed, foreign
}

// Get returns the rule of a flow, and whether there is one.
func (t *Flows) Get(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rules[makeFlowKey(&f)]
	return r, ok
}

// Delete removes the rule of a flow and returns it, and whether there was one.
func (t *Flows) Delete(f rule.Flow) (FlowRule, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := makeFlowKey(&f)
	r, ok := t.rules[k]
	delete(t.rules, k)
	t.noteChange(k)
	return r, ok
}

// Len returns the number of rules.
func (t *Flows) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rules)
}

// Select returns the flows for which pick returns true. pick must not call methods of t.
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

// Each calls f for every rule. f must not call methods of t.
func (t *Flows) Each(f func(rule.Flow, FlowRule)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.rules {
		f(k.flow(), r)
	}
}
