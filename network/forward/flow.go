package forward

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Key identifies a flow of default forwarding.
type Key struct {
	Src, Dst openflow.MAC
	VLAN     uint16
}

// String names the flow in the ledger.
func (k Key) String() string { return fmt.Sprintf("%v>%v@%d", k.Src, k.Dst, k.VLAN) }

func (k Key) compare(o Key) int {
	return cmp.Or(slices.Compare(k.Src[:], o.Src[:]), slices.Compare(k.Dst[:], o.Dst[:]), cmp.Compare(k.VLAN, o.VLAN))
}

// Flow is a flow that has rules, and the way it goes. It is immutable.
type Flow struct {
	Key
	Path topology.Path
}

// newFlow makes a flow. Short paths are kept next to the flow itself: the hot
// path reads both for every packet, and memory is what it waits for.
func newFlow(k Key, p topology.Path) *Flow {
	near := &struct {
		f    Flow
		hops [3]topology.Hop
	}{f: Flow{Key: k, Path: p}}
	if n := copy(near.hops[:], p.Hops); n == len(p.Hops) {
		near.f.Path.Hops = near.hops[:n:n]
	}
	return &near.f
}

// sharedOutputs are the actions of ports with small numbers, which all flows share.
var sharedOutputs = func() (all [256][]openflow.Action) {
	for p := range all {
		all[p] = []openflow.Action{openflow.Output(uint32(p))}
	}
	return all
}()

// outputs is the action list that sends out of a port.
func outputs(port uint32) []openflow.Action {
	if port < uint32(len(sharedOutputs)) {
		return sharedOutputs[port]
	}
	return []openflow.Action{openflow.Output(port)}
}

// ends reports whether the flow leads from one place to the other.
func (f *Flow) ends(from, to topology.PortRef) bool {
	first, last := f.Path.Hops[0], f.Path.Hops[len(f.Path.Hops)-1]
	return first.Switch == from.Switch && first.In == from.Port && last.Switch == to.Switch && last.Out == to.Port
}

// outAt finds what the flow does at the port, if it passes there.
func (f *Flow) outAt(at topology.PortRef) ([]openflow.Action, bool) {
	for _, h := range f.Path.Hops {
		if h.Switch == at.Switch && h.In == at.Port {
			return outputs(h.Output()), true
		}
	}
	return nil, false
}

// Table holds the flows that have rules. It is bounded: when it is full, packets
// are still forwarded, one by one.
type Table struct {
	mu    sync.RWMutex
	flows map[Key]*Flow
}

// MaxFlows bounds a table.
const MaxFlows = 1 << 17

// NewTable makes an empty table.
func NewTable() *Table { return &Table{flows: map[Key]*Flow{}} }

func (t *Table) find(k Key) *Flow {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.flows[k]
}

func (t *Table) put(f *Flow) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.flows[f.Key]; !known && len(t.flows) >= MaxFlows {
		return false
	}
	t.flows[f.Key] = f
	return true
}

// Len is the number of flows.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.flows)
}

// Delete forgets a flow: its rules have expired, or could not be installed.
func (t *Table) Delete(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flows, k)
}

// Repair compares all flows with the network as it is now. It returns the flows
// that go another way from now on, whose rules are to be replaced, and those
// that cannot go on at all, whose rules are to be deleted. The table is brought
// up to date. Flows whose way still exists are left alone, even if a better one
// has appeared. It holds up nobody who decides upon packets meanwhile, and leaves alone what
// they change.
func (t *Table) Repair(v *View) (replaced []*Flow, gone []Key) {
	for _, f := range t.all() {
		n, intact := v.repaired(f)
		if intact || !t.replace(f, n) {
			continue
		}
		if n == nil {
			gone = append(gone, f.Key)
		} else {
			replaced = append(replaced, n)
		}
	}
	slices.SortFunc(replaced, func(a, b *Flow) int { return a.compare(b.Key) })
	slices.SortFunc(gone, Key.compare)
	return replaced, gone
}

// all returns the flows in no order.
func (t *Table) all() []*Flow {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.flows))
}

// replace replaces a flow, or forgets it if n is nil. It reports false if the table has another
// flow by now, or none.
func (t *Table) replace(f, n *Flow) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flows[f.Key] != f {
		return false
	}
	if n == nil {
		delete(t.flows, f.Key)
	} else {
		t.flows[f.Key] = n
	}
	return true
}

// repaired reports whether a flow can stay as it is. Otherwise it returns the flow that takes
// its place, nil if there is none.
func (v *View) repaired(f *Flow) (n *Flow, intact bool) {
	from, to := v.place(f.Src, f.VLAN, f.from()), v.place(f.Dst, f.VLAN, f.to())
	if from.IsZero() || to.IsZero() {
		return nil, false
	}
	if f.ends(from, to) && v.intact(f.Path) {
		return nil, true
	}
	path, ok := v.Topology.Path(from, to, v.Metric)
	if !ok || from == to {
		return nil, false
	}
	return newFlow(f.Key, path), false
}

func (f *Flow) from() topology.PortRef {
	return topology.PortRef{Switch: f.Path.Hops[0].Switch, Port: f.Path.Hops[0].In}
}

func (f *Flow) to() topology.PortRef {
	last := f.Path.Hops[len(f.Path.Hops)-1]
	return topology.PortRef{Switch: last.Switch, Port: last.Out}
}

// place is where a host stands now. A host that has merely aged out of the table
// is taken to be where it was, as long as that is an edge port; zero means that
// it is nowhere.
func (v *View) place(mac openflow.MAC, vlan uint16, was topology.PortRef) topology.PortRef {
	if at, ok := v.Hosts.Lookup(mac, vlan); ok {
		return at
	}
	if v.Edges.IsEdge(was) {
		return was
	}
	return topology.PortRef{}
}

// intact reports whether every link of a path is still there.
func (v *View) intact(p topology.Path) bool {
	for i, h := range p.Hops {
		if !v.Topology.Has(h.Switch) {
			return false
		}
		if i == len(p.Hops)-1 {
			break
		}
		next := p.Hops[i+1]
		l, ok := v.Topology.LinkFrom(topology.PortRef{Switch: h.Switch, Port: h.Out})
		if !ok || l.To.Switch != next.Switch || l.To.Port != next.In {
			return false
		}
	}
	return true
}
