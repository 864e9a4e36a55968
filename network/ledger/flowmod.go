package ledger

import (
	"encoding/binary"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// FlowWriter encodes the rules of default forwarding. All of them have one
// form, so they are copies of a template made by the general encoder, with a
// few fields filled in.
type FlowWriter struct {
	tagged, any []byte // encoded rules whose match has a VLAN, or none
}

// Offsets of the variable fields in the templates. The fixed part of a flow-mod has 48 bytes;
// the match begins with in_port, eth_dst, eth_src, vlan_vid.
const (
	atXID    = 4
	atCookie = 8
	atTable  = 24
	atMatch  = 48
	atInPort = atMatch + 4 + 4
	atEthDst = atInPort + 4 + 4
	atEthSrc = atEthDst + 6 + 4
	atVLAN   = atEthSrc + 6 + 4
	// The output port is the only action's first field, 12 bytes before the end.
	portFromEnd = 12
)

// NewFlowWriter returns a writer of rules with the given idle timeout.
func NewFlowWriter(idle time.Duration) *FlowWriter {
	template := func(vlan uint16) []byte {
		r := FlowToRule(0, rule.Flow{VLAN: vlan}, 1, idle)
		b, err := flowMod(rule.OneTable, &r, openflow.FlowAdd).AppendTo(nil, 0)
		if err != nil {
			panic(err)
		}
		return b
	}
	return &FlowWriter{tagged: template(0), any: template(rule.AnyVLAN)}
}

// FlowToRule returns the rule of a flow in general form.
func FlowToRule(sw openflow.DatapathID, f rule.Flow, out uint32, idle time.Duration) rule.Rule {
	return rule.Rule{
		Switch: sw, Stage: rule.StageRoute, Offset: rule.RouteFlow, Match: f.Match(),
		Actions: []openflow.Action{openflow.Output(out)}, Idle: idle, NotifyRemoved: true,
	}
}

// AppendAdd appends the message that adds the rule of a flow to a switch with layout l.
func (w *FlowWriter) AppendAdd(b []byte, xid uint32, l rule.Layout, c rule.Cookie, f rule.Flow, out uint32) []byte {
	start := len(b)
	if f.VLAN == rule.AnyVLAN {
		b = append(b, w.any...)
	} else {
		b = append(b, w.tagged...)
	}
	m := b[start:]
	be := binary.BigEndian
	be.PutUint32(m[atXID:], xid)
	be.PutUint64(m[atCookie:], uint64(c))
	m[atTable] = l.Number(rule.TableRoute)
	be.PutUint32(m[atInPort:], f.InPort)
	copy(m[atEthDst:], f.Dst[:])
	copy(m[atEthSrc:], f.Src[:])
	if f.VLAN != rule.AnyVLAN && f.VLAN != 0 {
		be.PutUint16(m[atVLAN:], f.VLAN|0x1000)
	}
	be.PutUint32(m[len(m)-portFromEnd:], out)
	return b
}

// AppendDelete appends the message that deletes the rule of a flow from a switch with layout l.
func (w *FlowWriter) AppendDelete(b []byte, xid uint32, l rule.Layout, c rule.Cookie, f rule.Flow) []byte {
	at := l.Slot(rule.Key{Table: rule.TableRoute, Priority: rule.StageRoute.Base() + rule.RouteFlow, Match: f.Match()})
	s := switchState{layout: l}
	b, _ = s.remove(0, at, c, nil).Message.AppendTo(b, xid)
	return b
}
