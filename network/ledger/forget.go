package ledger

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Forget removes what an owner has declared under a key on one switch, and everything that was
// found on the switch. It produces no messages: the switch is disconnected and may never return.
// What other owners and keys declare stays.
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
		d.groups = forgetItems(d.groups, s.groups, o, key, sw)
		d.meters = forgetItems(d.meters, s.meters, o, key, sw)
		if len(d.rules)+len(d.groups)+len(d.meters) == 0 {
			delete(o.programs, key)
		}
	}
	clear(s.unclaimed)
	forgetFound(s.groups)
	forgetFound(s.meters)
	l.dropEmpty(sw)
}

// forgetItems returns all, the groups or meters that are declared under a key, without those of one
// switch. It also deletes from items, the state of that switch, those that no other key declares.
func forgetItems[T any](all []place[uint32], items map[uint32]*item[T], o *Owner, key string, sw openflow.DatapathID) []place[uint32] {
	return slices.DeleteFunc(slices.Clone(all), func(at place[uint32]) bool {
		if i := items[at.key]; at.sw == sw && i != nil && i.owner == o && slices.Equal(i.keys, []string{key}) {
			delete(items, at.key)
		}
		return at.sw == sw
	})
}

// dropEmpty removes the state of a switch if nothing is wanted or known on it.
func (l *Ledger) dropEmpty(sw openflow.DatapathID) {
	if s := l.switches[sw]; s != nil && s.reading == nil && l.comparisons[sw] == nil && len(s.rules)+len(s.groups)+len(s.meters)+len(s.unclaimed) == 0 {
		delete(l.switches, sw)
	}
}
