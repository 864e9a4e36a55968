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

// String returns the flow's name in the ledger.
func (k Key) String() string { return fmt.Sprintf("%v>%v@%d", k.Src, k.Dst, k.VLAN) }

func (k Key) compare(o Key) int {
	return cmp.Or(slices.Compare(k.Src[:], o.Src[:]), slices.Compare(k.Dst[:], o.Dst[:]), cmp.Compare(k.VLAN, o.VLAN))
}

// Flow is a flow that has rules, and its path. It is immutable.
type Flow struct {
	Key
	Path topology.Path
}

// newFlow returns a flow. It stores short paths next to the flow itself: Decide reads both for
// every packet, and its speed is limited by memory accesses.
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

// sharedOutputs holds the actions for small port numbers, which all flows share.
var sharedOutputs = func() (all [256][]openflow.Action) {
	for p := range all {
		all[p] = []openflow.Action{openflow.Output(uint32(p))}
	}
	return all
}()

// outputAction returns the action list that sends a packet out of a port.
func outputAction(port uint32) []openflow.Action {
	if port < uint32(len(sharedOutputs)) {
		return sharedOutputs[port]
	}
	return []openflow.Action{openflow.Output(port)}
}

// connects reports whether the flow leads from one port to the other.
func (f *Flow) connects(from, to topology.PortRef) bool {
	first, last := f.Path.Hops[0], f.Path.Hops[len(f.Path.Hops)-1]
	return first.Switch == from.Switch && first.In == from.Port && last.Switch == to.Switch && last.Out == to.Port
}

// actionsAt returns the actions of the flow's rule for packets that arrive at the port, and false
// if the flow's path does not enter a switch by that port.
func (f *Flow) actionsAt(at topology.PortRef) ([]openflow.Action, bool) {
	for _, h := range f.Path.Hops {
		if h.Switch == at.Switch && h.In == at.Port {
			return outputAction(h.Output()), true
		}
	}
	return nil, false
}

// Table holds the flows that have rules, up to MaxFlows. If it is full, packets are forwarded
// one by one.
type Table struct {
	mu    sync.RWMutex
	flows map[Key]*Flow
}

// MaxFlows is the limit of a table.
const MaxFlows = 1 << 17

// NewTable returns an empty table.
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

// Len returns the number of flows.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.flows)
}

// Delete removes a flow whose rules have expired or could not be installed.
func (t *Table) Delete(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flows, k)
}

// Repair compares all flows with the present network and updates the table. It returns the flows
// with a new path, whose rules are to be replaced, and those without a path, whose rules are to
// be deleted. A flow whose path still exists stays, even if a better path has appeared. Repair
// does not delay concurrent calls of Decide, and leaves flows alone that they change.
func (t *Table) Repair(v *View) (replaced []*Flow, gone []Key) {
	for _, f := range t.all() {
		n, intact := v.repairFlow(f)
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

// all returns the flows in no particular order.
func (t *Table) all() []*Flow {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.flows))
}

// replace replaces a flow, or removes it if n is nil. It returns false if the table no longer
// has this flow.
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

// repairFlow reports whether a flow can stay as it is. Otherwise it returns the flow that
// replaces it, or nil.
func (v *View) repairFlow(f *Flow) (n *Flow, intact bool) {
	from, to := v.hostPort(f.Src, f.VLAN, f.from()), v.hostPort(f.Dst, f.VLAN, f.to())
	if from.IsZero() || to.IsZero() {
		return nil, false
	}
	if f.connects(from, to) && v.pathIntact(f.Path) {
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

// hostPort returns the port at which a host is now. A host that has only expired from the table
// is assumed to be at its former port, if that is an edge port. The result is zero if there is
// none.
func (v *View) hostPort(mac openflow.MAC, vlan uint16, was topology.PortRef) topology.PortRef {
	if at, ok := v.Hosts.Lookup(mac, vlan); ok {
		return at
	}
	if v.Edges.IsEdge(was) {
		return was
	}
	return topology.PortRef{}
}

// pathIntact reports whether every link of a path still exists.
func (v *View) pathIntact(p topology.Path) bool {
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
