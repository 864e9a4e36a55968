package fake

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// Result describes what happens to a packet.
type Result struct {
	// Outputs are the copies that leave, in order. Reserved ports are kept as they are; copies
	// for the controller are included.
	Outputs []Output
	// Entries are the entries that handled the packet, one for each table.
	Entries []Entry
	// Why is the reason why nothing leaves, if nothing does.
	Why string
}

// Output is one copy of the packet when it leaves.
type Output struct {
	Port   uint32
	Packet Packet
	Queue  uint32 // zero unless one was set
}

// Ports returns the ports of the outputs.
func (r Result) Ports() []uint32 {
	out := make([]uint32, len(r.Outputs))
	for i, o := range r.Outputs {
		out[i] = o.Port
	}
	return out
}

// Send returns what happens to a packet that arrives at a port, and counts it.
func (t *FlowTable) Send(inPort uint32, p Packet) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := packetRun{t: t, p: p.With(openflow.InPort(inPort))}
	w.tables()
	if len(w.result.Outputs) == 0 && w.result.Why == "" {
		w.result.Why = "no output"
	}
	return w.result
}

// Execute applies a list of actions to a packet, as for a packet-out.
func (t *FlowTable) Execute(inPort uint32, p Packet, actions []openflow.Action) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := packetRun{t: t, p: p.With(openflow.InPort(inPort)), packetOut: true}
	w.actions(actions, 0)
	return w.result
}

// packetRun is the state of a packet's passage through the switch.
type packetRun struct {
	t         *FlowTable
	p         Packet
	queue     uint32
	set       []openflow.Action // the action set, from write-actions
	result    Result
	packetOut bool
}

func (w *packetRun) tables() {
	for table := uint8(0); ; {
		e := w.t.lookup(table, w.p)
		if e == nil {
			w.result.Why = fmt.Sprintf("no entry in table %d", table)
			return
		}
		e.Packets++
		e.Bytes += uint64(w.p.Size)
		e.Used = w.t.clock()
		w.result.Entries = append(w.result.Entries, *e)
		next, ok := w.instructions(e.Instructions)
		if !ok {
			break
		}
		table = next
	}
	w.actions(w.set, 0)
}

func (t *FlowTable) lookup(table uint8, p Packet) *Entry {
	if t.index == nil {
		t.index = indexOf(t.flows)
	}
	return t.index.find(table, p)
}

func (w *packetRun) instructions(ins []openflow.Instruction) (next uint8, ok bool) {
	for _, in := range ins {
		switch in.Type {
		case openflow.InstructionApplyActions:
			w.actions(in.Actions, 0)
		case openflow.InstructionClearActions:
			w.set = nil
		case openflow.InstructionWriteActions:
			w.set = append(w.set[:len(w.set):len(w.set)], in.Actions...)
		case openflow.InstructionWriteMetadata:
			w.p = w.p.With(openflow.Metadata(in.Metadata & in.Mask))
		case openflow.InstructionGotoTable:
			next, ok = in.Table, true
		}
	}
	return next, ok
}

// maxDepth bounds the nesting of groups.
const maxDepth = 8

// untagged matches packets without a VLAN tag.
var untagged = openflow.MustMatch(openflow.NoVLAN())

func (w *packetRun) actions(list []openflow.Action, depth int) {
	for _, a := range list {
		switch a.Type {
		case openflow.ActionOutput:
			if a.Arg == openflow.PortTable && w.packetOut {
				w.packetOut = false
				w.tables()
				continue
			}
			if in, ok := w.p.Get(openflow.FieldInPort); ok && uint32(in.Uint()) == a.Arg {
				continue // only an output to IN_PORT sends the packet back
			}
			w.result.Outputs = append(w.result.Outputs, Output{a.Arg, w.p, w.queue})
		case openflow.ActionGroup:
			w.group(a.Arg, depth)
		case openflow.ActionSetField:
			if a.OXM.Field == openflow.FieldVLANVID && w.p.Matches(untagged) {
				continue // the packet has no tag
			}
			w.p = w.p.With(a.OXM)
		case openflow.ActionSetQueue:
			w.queue = a.Arg
		case openflow.ActionPushVLAN:
			w.p = w.p.With(openflow.VLANVID(0), openflow.VLANPCP(0))
		case openflow.ActionPopVLAN:
			w.p = w.p.untagged()
		}
	}
}

// group applies a group: all buckets, or the first, which stands for the one that a switch would
// choose.
func (w *packetRun) group(id uint32, depth int) {
	g := w.t.groups[id]
	if g == nil || depth > maxDepth {
		w.result.Why = fmt.Sprintf("group %#x is not there or nested too deep", id)
		return
	}
	before, queue := w.p, w.queue
	g.all.Packets++
	g.all.Bytes += uint64(before.Size)
	for i, b := range g.Buckets {
		g.each[i].Packets++
		g.each[i].Bytes += uint64(before.Size)
		w.p, w.queue = before, queue
		w.actions(b.Actions, depth+1)
		if g.Type != openflow.GroupTypeAll {
			break
		}
	}
	w.p, w.queue = before, queue
}

// Group applies a group modification.
func (t *FlowTable) Group(m *openflow.GroupMod) ([]Removed, *openflow.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, exists := t.groups[m.Group]
	switch {
	case m.Command == openflow.GroupAdd && exists:
		return nil, &openflow.Error{Code: openflow.GroupModExists}
	case m.Command == openflow.GroupModify && !exists:
		return nil, &openflow.Error{Code: openflow.GroupModUnknown}
	case m.Command != openflow.GroupDelete:
		t.groups[m.Group] = &groupEntry{GroupMod: m, each: make([]openflow.Counter, len(m.Buckets))}
		return nil, nil
	case m.Group == openflow.GroupAll:
		clear(t.groups)
	default:
		delete(t.groups, m.Group)
	}
	gone := t.remove(&openflow.FlowMod{
		Command: openflow.FlowDelete, Table: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: m.Group,
	})
	for i := range gone {
		gone[i].Reason = openflow.RemovedGroup
	}
	return gone, nil
}

// groupEntry is a group with its counters and those of each of its buckets.
type groupEntry struct {
	*openflow.GroupMod
	all  openflow.Counter
	each []openflow.Counter
}

// GroupStats returns the groups' counters.
func (t *FlowTable) GroupStats() (out []openflow.GroupStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, g := range t.groups {
		out = append(out, openflow.GroupStats{Group: id, Counter: g.all, Buckets: slices.Clone(g.each)})
	}
	return out
}

// Groups returns the groups.
func (t *FlowTable) Groups() []openflow.GroupDesc {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []openflow.GroupDesc
	for id, g := range t.groups {
		out = append(out, openflow.GroupDesc{Type: g.Type, Group: id, Buckets: g.Buckets})
	}
	return out
}

// Meter applies a meter modification. Like Open vSwitch with OpenFlow 1.3, it deletes the entries of
// a deleted meter without a notice.
func (t *FlowTable) Meter(m *openflow.MeterMod) *openflow.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, exists := t.meters[m.Meter]
	switch {
	case m.Command == openflow.MeterAdd && exists:
		return &openflow.Error{Code: openflow.MeterModExists}
	case m.Command == openflow.MeterModify && !exists:
		return &openflow.Error{Code: openflow.MeterModUnknown}
	case m.Command == openflow.MeterDelete:
		delete(t.meters, m.Meter)
		t.index = nil
		t.flows = slices.DeleteFunc(t.flows, func(e *Entry) bool { return e.passes(m.Meter) })
	default:
		t.meters[m.Meter] = m
	}
	return nil
}

// Meters returns the meters.
func (t *FlowTable) Meters() []openflow.MeterConfig {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []openflow.MeterConfig
	for id, m := range t.meters {
		out = append(out, openflow.MeterConfig{Flags: m.Flags, Meter: id, Bands: m.Bands})
	}
	return out
}
