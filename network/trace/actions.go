package trace

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// actions applies an action list to the packet.
func (x *switchRun) actions(list []openflow.Action, via string, l *Lookup, depth int) {
	for _, a := range list {
		if x.end != "" {
			return
		}
		switch a.Type {
		case openflow.ActionOutput:
			x.output(a.Arg, via)
		case openflow.ActionGroup:
			x.group(a.Arg, l, depth)
		default:
			l.Did = append(l.Did, x.modify(a))
		}
	}
}

// output sends a copy of the packet out of a port.
func (x *switchRun) output(port uint32, via string) {
	o := Output{Port: openflow.PortName(port), Via: via, Next: -1}
	switch {
	case port == x.at.Port:
		o.To = "nowhere: a switch does not send a packet back by a plain output to its in-port"
	case port == openflow.PortInPort:
		x.send(&o, x.at.Port)
	case port <= openflow.PortMax:
		x.send(&o, port)
	case port == openflow.PortController:
		o.To = x.r.n.Controller()
	case port == openflow.PortLocal:
		o.To = "the switch's own network stack"
	default:
		o.To = "ports that the switch itself chooses"
	}
	x.outputs = append(x.outputs, o)
}

// send follows the link from a port.
func (x *switchRun) send(o *Output, port uint32) {
	from := topology.PortRef{Switch: x.at.Switch, Port: port}
	if link, ok := x.r.n.LinkFrom(from); ok {
		o.Next, o.To = x.r.enqueue(link.To, x.p, x.i)
		return
	}
	hosts := x.r.n.HostsAt(from)
	switch len(hosts) {
	case 0:
		o.To = "an edge port without known hosts"
	case 1:
		o.To = "host " + hosts[0]
	default:
		o.To = fmt.Sprintf("an edge port with %d hosts, %s and others", len(hosts), hosts[0])
	}
}

// group applies a group. Which bucket of a select group a switch chooses cannot be known, so all
// buckets are followed. Of a failover group, only the first bucket is followed.
func (x *switchRun) group(id uint32, l *Lookup, depth int) {
	g, ok := x.r.n.Group(x.at.Switch, id)
	if !ok {
		x.end = fmt.Sprintf("dropped: there is no group %d", id)
		return
	}
	if depth >= maxNested {
		x.end = fmt.Sprintf("given up: groups nested more than %d deep", maxNested)
		return
	}
	kind := g.Type.String()
	if g.Type == openflow.GroupTypeSelect {
		kind += ": one of these"
	}
	before := x.p
	for i, b := range g.Buckets {
		if g.Type == openflow.GroupTypeSelect && slices.ContainsFunc(g.Buckets[:i], func(o openflow.Bucket) bool { return slices.Equal(o.Actions, b.Actions) }) {
			continue // an earlier bucket has the same actions
		}
		x.p = before // each bucket works on its own copy
		x.actions(b.Actions, fmt.Sprintf("group %d (%s), bucket %d", id, kind, i), l, depth+1)
		if g.Type == openflow.GroupTypeFastFailover || g.Type == openflow.GroupTypeIndirect {
			break
		}
	}
	x.p = before
}

// modify applies an action that changes the packet, and describes it.
func (x *switchRun) modify(a openflow.Action) string {
	switch a.Type {
	case openflow.ActionSetField:
		old, ok := x.p.Get(a.OXM.Field)
		if !ok || a.OXM.Field == openflow.FieldVLANVID && old.Uint() == 0 {
			return fmt.Sprintf("set %v: not done, the packet has no such field", a.OXM)
		}
		x.p = x.p.With(a.OXM)
		return fmt.Sprintf("set %v, was %v", a.OXM, old)
	case openflow.ActionPushVLAN:
		x.pushVLAN()
	case openflow.ActionPopVLAN:
		if !x.popVLAN() {
			return "pop_vlan: not done, the packet has no tag"
		}
	case openflow.ActionPushMPLS:
		x.p = x.p.With(openflow.EthType(uint16(a.Arg))).With(openflow.MPLSLabel(0)).With(openflow.MPLSTC(0))
	case openflow.ActionPopMPLS:
		x.p = x.p.without(openflow.FieldMPLSLabel, openflow.FieldMPLSTC, openflow.FieldMPLSBOS).With(openflow.EthType(uint16(a.Arg)))
	case openflow.ActionDecNWTTL:
		if x.p.TTL <= 1 {
			x.end = "dropped: the TTL ran out"
			return fmt.Sprint(a)
		}
		x.p.TTL--
		return fmt.Sprintf("%v, now %d", a, x.p.TTL)
	case openflow.ActionSetNWTTL:
		x.p.TTL = uint8(a.Arg)
	}
	return fmt.Sprint(a)
}

// pushVLAN adds an outer tag, which begins with the identifier of the tag below it.
func (x *switchRun) pushVLAN() {
	tag, _ := x.p.Get(openflow.FieldVLANVID)
	if tag.Uint() == 0 {
		x.p = x.p.With(openflow.VLANVID(0)).With(openflow.VLANPCP(0))
		return
	}
	x.p.tags = append(x.p.tags[:len(x.p.tags):len(x.p.tags)], tag.Value)
}

func (x *switchRun) popVLAN() bool {
	tag, _ := x.p.Get(openflow.FieldVLANVID)
	if tag.Uint() == 0 {
		return false
	}
	if n := len(x.p.tags); n > 0 {
		x.p = x.p.With(openflow.OXM{Field: openflow.FieldVLANVID, Value: x.p.tags[n-1]})
		x.p.tags = x.p.tags[:n-1]
		return true
	}
	x.p = x.p.With(openflow.NoVLAN()).without(openflow.FieldVLANPCP)
	return true
}
