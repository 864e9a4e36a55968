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

// Record is what is kept of a host over a restart.
type Record struct {
	MAC    openflow.MAC
	VLAN   uint16
	At     topology.PortRef
	IPs    []netip.Addr // the newest last
	Router RouterState
	// Again says that the host was seen more than once.
	Again bool
	// Seen is when it was last seen at the time of the record.
	Seen time.Time
}

// Note is what has changed about what is to be kept: a host as it is now, or one that has
// gone, of which only MAC, VLAN and the switch are set.
type Note struct {
	Record
	Gone   bool
	number uint64
}

// maxNotes is how many changes Notes returns at once.
const maxNotes = 4096

// memory is what who keeps hosts does not know yet. What changes is in changed until it is
// kept; what has never been kept and has gone is not, so that both are bounded by the hosts
// that the table has room for.
type memory struct {
	wanted  bool // Options.Notes
	number  uint64
	changed map[uint64]change // by key
	kept    map[uint64]struct{}
}

// change is the latest of a host, by its number among all.
type change struct {
	number uint64
	of     openflow.DatapathID
}

// note notes that a host has changed; the mutex is held.
func (m *memory) note(e *entry) {
	m.noteKey(key(e.mac, e.vlan), e.state.Load().at.Switch)
}

// gone notes that a host has gone; the mutex is held.
func (m *memory) gone(k uint64, d openflow.DatapathID) {
	if _, kept := m.kept[k]; !kept {
		delete(m.changed, k)
		return
	}
	m.noteKey(k, d)
}

func (m *memory) noteKey(k uint64, d openflow.DatapathID) {
	if m.wanted {
		m.number++
		m.changed[k] = change{m.number, d}
	}
}

// noteSeenAgain notes that a host was seen again, if it is still there.
func (t *Table) noteSeenAgain(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known.find(e.mac, e.vlan) == e {
		t.memory.note(e)
	}
}

// Notes returns what has changed and is not kept yet, the oldest first, a part of it at once
// if it is much. may is asked for each whether one more of its switch is to be kept now. What
// has been kept is for Kept.
func (t *Table) Notes(may func(openflow.DatapathID) bool) []Note {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(t.memory.changed), func(a, b uint64) int {
		return cmp.Compare(t.memory.changed[a].number, t.memory.changed[b].number)
	})
	var notes []Note
	for _, k := range keys {
		if len(notes) == maxNotes {
			break
		}
		if c := t.memory.changed[k]; may(c.of) {
			notes = append(notes, t.noteOf(k, c))
		}
	}
	return notes
}

func (t *Table) noteOf(k uint64, c change) Note {
	e := t.known.entry(k)
	if e == nil {
		n := Note{Gone: true, number: c.number}
		n.MAC, n.VLAN = openflow.MAC{byte(k >> 56), byte(k >> 48), byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16)}, uint16(k)
		n.At.Switch = c.of
		return n
	}
	s := e.state.Load()
	return Note{number: c.number, Record: Record{
		MAC: e.mac, VLAN: e.vlan, At: s.at, IPs: slices.Clone(s.ips), Router: s.router, Again: e.again.Load(), Seen: time.Unix(0, e.seen.Load()),
	}}
}

// Kept says that what notes tell has been kept.
func (t *Table) Kept(notes []Note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range notes {
		k := key(n.MAC, n.VLAN)
		if t.memory.changed[k].number == n.number {
			delete(t.memory.changed, k)
		}
		if n.Gone {
			delete(t.memory.kept, k)
			continue
		}
		t.memory.kept[k] = struct{}{}
		if t.known.entry(k) == nil { // it has gone meanwhile, which was not worth a note
			t.memory.noteKey(k, n.At.Switch)
		}
	}
}

// Unkept is how many hosts have changed and are not kept as they are.
func (t *Table) Unkept() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.memory.changed)
}

// Restore makes hosts known that were before the start, which is now. It has to be called
// before anything is learned. They have the shares that others have: where there is no room,
// those that were seen but once, and then the newest, are left out, and so is whatever
// contradicts what is pinned. Claims about them wait for their switch.
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
		t.memory.kept[k] = struct{}{}
		if !t.restore(r, now) && t.known.entry(k) == nil {
			t.memory.noteKey(k, r.At.Switch)
		}
	}
	for _, p := range t.places.switches {
		p.left, p.until = now, now.Add(t.Patience())
	}
}

// restore makes one host known, unless it must not be; the mutex is held.
func (t *Table) restore(r *Record, now time.Time) bool {
	if r.MAC.IsMulticast() || r.MAC.IsZero() || t.opts.IgnoreVLAN && r.VLAN != 0 || t.known.find(r.MAC, r.VLAN) != nil ||
		t.places.full(r.At) || !t.pins.Load().allow(r.MAC, netip.Addr{}, r.At) {
		return false
	}
	e := t.add(r.MAC, r.VLAN, r.At, now)
	e.seen.Store(min(r.Seen.UnixNano(), now.UnixNano()))
	e.again.Store(r.Again)
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
		delete(t.memory.changed, key(r.MAC, r.VLAN)) // it is as it was kept
	}
	return true
}
