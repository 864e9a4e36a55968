package latency

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// table has the classes. Its lock guards them and all that is known of them.
type table struct {
	publish func(kind string, attrs any)
	index   atomic.Pointer[index]

	mu       sync.Mutex
	byName   map[string]*entry
	left     map[string]bool // classes of which a placement or rules are not gone yet
	lastDSCP int             // place of the one given last, among the marks
}

func newTable(publish func(string, any)) *table {
	t := &table{publish: publish, byName: map[string]*entry{}, left: map[string]bool{}}
	t.index.Store(&index{})
	return t
}

// sorted are the classes by name. The lock is held.
func (t *table) sorted() (out []*entry) {
	for _, name := range slices.Sorted(maps.Keys(t.byName)) {
		out = append(out, t.byName[name])
	}
	return out
}

// those are the classes of which which is true, by name.
func (t *table) those(which func(*entry) bool) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(t.sorted(), func(e *entry) bool { return !which(e) })
}

func all(*entry) bool { return true }

// get finds a class; nil if there is none of the name.
func (t *table) get(name string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

// freeQueue is the lowest queue number that no class has. The lock is held.
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

// marks are the DSCPs by which a userspace datapath tells the classifier a packet's
// queue: first those of the pools for experimental and local use (RFC 2474, section
// 6, but for LE of RFC 8622), then those of pool 1 that are not assigned.
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

// freeMark finds a mark that no other class has on any of the ports: the one that the
// class has, if it can. The lock is held.
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
		// Whoever they are: what they mean between carriers must not be changed.
		if dscp := other.carriage.dscp; dscp != 0 && len(ports) > 0 {
			taken[dscp] = ports[0]
		}
	}
	if e.mark != 0 {
		if _, is := taken[e.mark]; !is {
			return e.mark, nil
		}
	}
	for _, m := range marks {
		if _, is := taken[m]; !is {
			return m, nil
		}
	}
	return 0, &Refusal{"flows", e.class.Name, fmt.Sprintf("port %v has %d classes already, as many as a userspace datapath can tell apart", taken[marks[0]], len(marks))}
}

// freeDSCP finds one for packets between carriers that means nothing else in the network;
// zero if there is none left. Those that were given up last come last: packets on their way
// may bear them still. The lock is held.
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

// compare notes which packets a class that is in the switches now has in common with
// others, and tells of those that have lost all of theirs, or have none themselves.
func (t *table) compare(e *entry) {
	t.mu.Lock()
	changed := []*entry{e}
	for name, x := range t.byName {
		if x == e || x.state == StateProvisioning {
			continue
		}
		if o, is := overlapOf(&x.class, &e.class); is {
			x.overlaps[e.class.Name] = o
			changed = append(changed, x)
		}
		if o, is := overlapOf(&e.class, &x.class); is {
			e.overlaps[name] = o
		}
	}
	t.settle(changed)
}

// forget takes a class that has gone out of what is noted of others.
func (t *table) forget(name string) {
	t.mu.Lock()
	var changed []*entry
	for _, x := range t.byName {
		if _, is := x.overlaps[name]; is {
			delete(x.overlaps, name)
			changed = append(changed, x)
		}
	}
	t.settle(changed)
}

// settle has the states of classes follow what is wrong with them, and tells which have
// changed. The lock is held, and open afterwards.
func (t *table) settle(entries []*entry) {
	var told []map[string]any
	for _, e := range entries {
		before := e.state
		if e.settle(); e.state == before {
			continue
		}
		attrs := map[string]any{"class": e.class.Name}
		if e.state == StateIneffective {
			attrs["reason"] = e.reason
		}
		told = append(told, attrs)
	}
	t.mu.Unlock()
	for _, attrs := range told {
		t.tell(attrs)
	}
}

// tell tells that a class has no effect, for a reason; or, without one, that it has.
func (t *table) tell(attrs map[string]any) {
	if attrs["reason"] == nil {
		t.publish("class.effective", attrs)
		return
	}
	t.publish("class.ineffective", attrs)
}
