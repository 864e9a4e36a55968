package classes

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// table holds the classes. Its lock guards them and everything known about them.
type table struct {
	publish func(kind string, attrs any)
	index   atomic.Pointer[index]

	mu       sync.Mutex
	byName   map[string]*entry
	cleanups map[string]bool // names of deleted classes whose record or rules have not been removed yet
	lastDSCP int             // index in marks of the DSCP that freeDSCP returned last
}

func newTable(publish func(string, any)) *table {
	t := &table{publish: publish, byName: map[string]*entry{}, cleanups: map[string]bool{}}
	t.index.Store(&index{})
	return t
}

// sorted returns the classes by name. The lock is held.
func (t *table) sorted() (out []*entry) {
	for _, name := range slices.Sorted(maps.Keys(t.byName)) {
		out = append(out, t.byName[name])
	}
	return out
}

// filter returns the classes for which the function returns true, ordered by name.
func (t *table) filter(which func(*entry) bool) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(t.sorted(), func(e *entry) bool { return !which(e) })
}

func all(*entry) bool { return true }

// get returns the class with the given name; nil if there is none.
func (t *table) get(name string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

// freeQueue returns the lowest queue number that no class has. The lock is held.
func (t *table) freeQueue() uint32 {
	taken := map[uint32]bool{}
	for _, e := range t.byName {
		taken[e.queue] = true
	}
	n := uint32(1)
	for taken[n] {
		n++
	}
	return n
}

// marks lists the DSCPs by which a userspace datapath tells the classifier a packet's
// queue: first those of the pools for experimental and local use (RFC 2474, section 6,
// except LE of RFC 8622), then those of pool 1 that are not assigned.
var marks = func() []uint8 {
	var out []uint8
	for _, low := range []uint8{3, 1} {
		for high := range uint8(16) {
			if m := high<<2 | low; m != 1 {
				out = append(out, m)
			}
		}
	}
	return append(out, 2, 4, 6, 42, 50, 52, 54, 58, 60, 62)
}()

// freeMark returns a mark that no other class has at any of the ports. It is the class's present
// mark if possible. The lock is held.
func (t *table) freeMark(e *entry, ports []place) (uint8, error) {
	taken := map[uint8]place{}
	for _, other := range t.byName {
		if other != e && other.routes != nil {
			for _, at := range other.held() {
				if slices.Contains(ports, at) {
					taken[other.mark] = at
				}
			}
		}
		// Packets between carriers have these DSCPs already, which must not be taken for marks.
		if dscp := other.carriage.dscp; dscp != 0 && len(ports) > 0 {
			taken[dscp] = ports[0]
		}
	}
	if e.mark != 0 {
		if _, ok := taken[e.mark]; !ok {
			return e.mark, nil
		}
	}
	for _, m := range marks {
		if _, ok := taken[m]; !ok {
			return m, nil
		}
	}
	return 0, &Refusal{"flows", e.class.Name, fmt.Sprintf("port %v has %d classes already, as many as a userspace datapath can tell apart", taken[marks[0]], len(marks))}
}

// freeDSCP returns a DSCP for packets between carriers that has no other meaning in the network;
// zero if none is left. It reuses a released DSCP as late as possible, because packets in flight
// may still have it. The lock is held.
func (t *table) freeDSCP() uint8 {
	taken := map[uint8]bool{}
	for _, e := range t.byName {
		taken[e.mark], taken[e.carriage.dscp] = true, true
		for _, f := range e.class.Flows {
			taken[f.dscp()] = true
		}
	}
	for range marks {
		t.lastDSCP = (t.lastDSCP + len(marks) - 1) % len(marks)
		if m := marks[t.lastDSCP]; !taken[m] {
			return m
		}
	}
	return 0
}

// updateOverlaps records which packets an installed class shares with other classes, and reports
// classes that have lost all their packets to it.
func (t *table) updateOverlaps(e *entry) {
	t.mu.Lock()
	changed := []*entry{e}
	for name, x := range t.byName {
		if x == e || x.state == StateProvisioning {
			continue
		}
		if o, ok := overlapOf(&x.class, &e.class); ok {
			x.overlaps[e.class.Name] = o
			changed = append(changed, x)
		}
		if o, ok := overlapOf(&e.class, &x.class); ok {
			e.overlaps[name] = o
		}
	}
	t.updateStates(changed)
}

// removeOverlaps removes the overlaps of other classes with the class of the given name, which has
// been removed.
func (t *table) removeOverlaps(name string) {
	t.mu.Lock()
	var changed []*entry
	for _, x := range t.byName {
		if _, ok := x.overlaps[name]; ok {
			delete(x.overlaps, name)
			changed = append(changed, x)
		}
	}
	t.updateStates(changed)
}

// updateStates updates the states of classes after their faults have changed, and reports
// the changes. The lock is held when it is called, and released when it returns.
func (t *table) updateStates(entries []*entry) {
	var changes []map[string]any
	for _, e := range entries {
		before := e.state
		if e.updateState(); e.state == before {
			continue
		}
		attrs := map[string]any{"class": e.class.Name}
		if e.state == StateIneffective {
			attrs["reason"] = e.reason
		}
		changes = append(changes, attrs)
	}
	t.mu.Unlock()
	for _, attrs := range changes {
		t.publishEffect(attrs)
	}
}

// publishEffect publishes that a class has no effect if attrs contains a reason, and otherwise that
// it has an effect again.
func (t *table) publishEffect(attrs map[string]any) {
	if attrs["reason"] == nil {
		t.publish("class.effective", attrs)
		return
	}
	t.publish("class.ineffective", attrs)
}
