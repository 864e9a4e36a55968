package ledger

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Forget takes out what an owner has declared under a key on one switch, and all
// that was found there, without anything to send: the switch has gone, and may
// never come back. What other owners and keys declare stays.
func (l *Ledger) Forget(o *Owner, key string, sw openflow.DatapathID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.switches[sw]
	if s == nil {
		return
	}
	if d := o.programs[key]; d != nil {
		for _, at := range d.rules {
			if e := s.rules[at.key]; at.sw == sw && e != nil && e.owner == o && slices.Equal(e.keys, []string{key}) {
				delete(s.rules, at.key)
			}
		}
		d.rules = slices.DeleteFunc(slices.Clone(d.rules), func(at place[rule.Key]) bool { return at.sw == sw })
		if len(d.rules)+len(d.groups)+len(d.meters) == 0 {
			delete(o.programs, key)
		}
	}
	clear(s.unclaimed)
	forgetFound(s.groups)
	forgetFound(s.meters)
	l.dropEmpty(sw)
}

// dropEmpty forgets a switch of which nothing is wanted or known.
func (l *Ledger) dropEmpty(sw openflow.DatapathID) {
	if s := l.switches[sw]; s != nil && len(s.rules)+len(s.groups)+len(s.meters)+len(s.unclaimed) == 0 {
		delete(l.switches, sw)
	}
}
