package ledger

import (
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// Leased returns the keys under which the owner has declared leased rules, sorted.
func (l *Ledger) Leased(o *Owner) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for key, d := range o.programs {
		if d.leased {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// Renew returns the operations that write the confirmed leased rules of a key again.
func (l *Ledger) Renew(o *Owner, key string) []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := o.programs[key]
	if d == nil {
		return nil
	}
	var out []Op
	for _, p := range d.rules {
		s := l.stateOf(p.sw)
		if e := s.rules[p.key]; e != nil && e.Rule.Leased && e.Confirmed {
			out = s.appendWrite(out, e, openflow.FlowAdd)
		}
	}
	return out
}
