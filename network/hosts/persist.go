package hosts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Record holds what is stored about a host, so that it survives a restart.
type Record struct {
	MAC    openflow.MAC
	VLAN   uint16
	At     topology.PortRef
	IPs    []netip.Addr // in the order in which they were learned
	Router RouterState
	// Again reports whether the host was seen more than once.
	Again bool
	// Seen is when the host was last seen before the record was made.
	Seen time.Time
}

// RecordChange is a change to be stored: a host as it is now, or a host that has left, with only
// MAC, VLAN and the switch set.
type RecordChange struct {
	Record
	Gone   bool
	number uint64
}

// maxUnsavedChanges limits the changes that UnsavedChanges returns at once.
const maxUnsavedChanges = 4096

// changeLog holds the changes that are not stored yet. A host that leaves before it was ever
// stored is dropped from the log, so both maps are bounded by the number of hosts that the table
// and the store have.
type changeLog struct {
	enabled bool // Options.TrackChanges
	number  uint64
	changed map[uint64]revision // by key
	saved   map[uint64]struct{}
}

// revision is the latest change of a host, by its number among all changes.
type revision struct {
	number uint64
	sw     openflow.DatapathID
}

// record records that a host has changed. The mutex is held.
func (m *changeLog) record(e *entry) {
	m.recordKey(key(e.mac, e.vlan), e.state.Load().at.Switch)
}

// recordRemoval records that a host has left. The mutex is held.
func (m *changeLog) recordRemoval(k uint64, d openflow.DatapathID) {
	if _, kept := m.saved[k]; !kept {
		delete(m.changed, k)
		return
	}
	m.recordKey(k, d)
}

func (m *changeLog) recordKey(k uint64, d openflow.DatapathID) {
	if m.enabled {
		m.number++
		m.changed[k] = revision{m.number, d}
	}
}

// recordSeenAgain records that a host was seen again, if it is still in the table.
func (t *Table) recordSeenAgain(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known.find(e.mac, e.vlan) == e {
		t.unsaved.record(e)
	}
}

// UnsavedChanges returns the changes that are not stored yet, the oldest first, and at most
// maxUnsavedChanges of them. It calls may for each change, to ask whether one more change of
// this switch may be stored now. The caller reports stored changes to MarkSaved.
func (t *Table) UnsavedChanges(may func(openflow.DatapathID) bool) []RecordChange {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(t.unsaved.changed), func(a, b uint64) int {
		return cmp.Compare(t.unsaved.changed[a].number, t.unsaved.changed[b].number)
	})
	var notes []RecordChange
	for _, k := range keys {
		if len(notes) == maxUnsavedChanges {
			break
		}
		if c := t.unsaved.changed[k]; may(c.sw) {
			notes = append(notes, t.recordChange(k, c))
		}
	}
	return notes
}

func (t *Table) recordChange(k uint64, c revision) RecordChange {
	e := t.known.entry(k)
	if e == nil {
		n := RecordChange{Gone: true, number: c.number}
		n.MAC, n.VLAN = openflow.MAC{byte(k >> 56), byte(k >> 48), byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16)}, uint16(k)
		n.At.Switch = c.sw
		return n
	}
	s := e.state.Load()
	return RecordChange{number: c.number, Record: Record{
		MAC: e.mac, VLAN: e.vlan, At: s.at, IPs: slices.Clone(s.ips), Router: s.router, Again: e.seenAgain.Load(), Seen: time.Unix(0, e.seen.Load()),
	}}
}

// MarkSaved records that changes have been stored.
func (t *Table) MarkSaved(notes []RecordChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range notes {
		k := key(n.MAC, n.VLAN)
		if t.unsaved.changed[k].number == n.number {
			delete(t.unsaved.changed, k)
		}
		if n.Gone {
			delete(t.unsaved.saved, k)
			continue
		}
		t.unsaved.saved[k] = struct{}{}
		if t.known.entry(k) == nil { // it left before its record was stored, so its removal is not recorded yet
			t.unsaved.recordKey(k, n.At.Switch)
		}
	}
}

// UnsavedCount returns how many hosts have changes that are not stored.
func (t *Table) UnsavedCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.unsaved.changed)
}

// Restore adds the hosts that were known before the controller's start, which is now. It must be
// called before anything is learned. The limits for ports and switches hold for these hosts,
// too: if there is no room, those that were seen only once are left out first, and then the
// newest. Records that contradict a pinned host are ignored. Claims about restored hosts wait
// for their switch.
func (t *Table) Restore(records []Record, now time.Time) {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int {
		if a.Again != b.Again {
			return map[bool]int{true: -1, false: 1}[a.Again]
		}
		return a.Seen.Compare(b.Seen)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range records {
		r := &records[i]
		k := key(r.MAC, r.VLAN)
		t.unsaved.saved[k] = struct{}{}
		if !t.restore(r, now) && t.known.entry(k) == nil {
			t.unsaved.recordKey(k, r.At.Switch)
		}
	}
	for _, p := range t.places.switches {
		p.leftAt, p.waitUntil = now, now.Add(t.MaxClaimWait())
	}
}

// restore adds one host, and reports whether it did. The mutex is held.
func (t *Table) restore(r *Record, now time.Time) bool {
	if r.MAC.IsMulticast() || r.MAC.IsZero() || t.opts.IgnoreVLAN && r.VLAN != 0 || t.known.find(r.MAC, r.VLAN) != nil ||
		t.places.full(r.At) || !t.pins.Load().allow(r.MAC, netip.Addr{}, r.At) {
		return false
	}
	e := t.add(r.MAC, r.VLAN, r.At, now)
	e.seen.Store(min(r.Seen.UnixNano(), now.UnixNano()))
	e.seenAgain.Store(r.Again)
	t.update(e, func(s *state) {
		s.router = r.Router
		for _, a := range r.IPs {
			a = a.Unmap().WithZone("")
			if len(s.ips) < t.opts.MaxIPs && isHostAddress(a) && t.ips.holder(a, r.VLAN) == nil && t.pins.Load().allow(r.MAC, a, r.At) {
				s.ips = append(s.ips, a)
				t.ips.add(a, e)
			}
		}
	})
	if len(e.state.Load().ips) == len(r.IPs) {
		delete(t.unsaved.changed, key(r.MAC, r.VLAN)) // the store has the same
	}
	return true
}
