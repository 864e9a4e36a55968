package trace

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestAgainstFakeFlowTable gives random rules to a trace and to the fake flow table, which are
// independent implementations, and compares their results for random packets.
func TestAgainstFakeFlowTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, table := newNet(), fake.NewFlowTable(func() time.Time { return time.Time{} })
		n.rules[1] = []rule.Installed{}
		for i := range rapid.IntRange(1, 8).Draw(t, "rules") {
			r := drawRule(t, i)
			n.rules[1] = append(n.rules[1], r)
			m := &openflow.FlowMod{
				Table: r.Number, Priority: r.Priority(), Match: r.Match, BufferID: openflow.NoBuffer,
				OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
			}
			if len(r.Actions) > 0 {
				m.Instructions = append(m.Instructions, openflow.Instruction{Type: openflow.InstructionApplyActions, Actions: r.Actions})
			}
			if r.Next != 0 {
				m.Instructions = append(m.Instructions, openflow.Instruction{Type: openflow.InstructionGotoTable, Table: r.Next})
			}
			if _, err := table.Flow(m); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		}
		fields := []openflow.OXM{
			openflow.NoVLAN(), openflow.EthType(0x0800), openflow.IPProto(6),
			openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, rapid.ByteRange(0, 2).Draw(t, "mac")}),
			openflow.TCPDst(rapid.Uint16Range(80, 82).Draw(t, "port")),
		}
		if rapid.Bool().Draw(t, "tagged") {
			fields[0] = openflow.VLANVID(rapid.Uint16Range(1, 2).Draw(t, "vlan"))
		}
		in := rapid.Uint32Range(1, 2).Draw(t, "in")
		want := table.Send(in, fake.NewPacket(fields...))
		got := Run(n, ref(1, int(in)), NewPacket(fields...)).Steps[0]
		var ports, wantPorts []string
		for _, o := range got.Outputs {
			if o.Port != fmt.Sprint(in) { // a switch does not send a packet back by a plain output
				ports = append(ports, o.Port)
			}
		}
		for _, p := range want.Ports() {
			wantPorts = append(wantPorts, openflow.PortName(p))
		}
		if !slices.Equal(ports, wantPorts) {
			t.Fatalf("the trace has outputs %v, the flow table %v (%s)", ports, wantPorts, want.Why)
		}
		for i, e := range want.Entries {
			if r := got.Tables[i].Rule; r == nil || r.Priority != e.Priority || r.Match != e.Match.String() {
				t.Fatalf("table %d: the trace takes %+v, the flow table priority %d %v", i, r, e.Priority, e.Match)
			}
		}
	})
}

// drawRule draws a rule with a unique priority: of two with the same priority, a switch may use
// either.
func drawRule(t *rapid.T, i int) rule.Installed {
	r := rule.Rule{Switch: 1, Stage: rule.StageRewrite, Offset: uint16(rapid.IntRange(0, 9).Draw(t, "priority")*10 + i)}
	match := []openflow.OXM{openflow.EthType(0x0800), openflow.IPProto(6)}
	for _, f := range []openflow.OXM{
		openflow.InPort(1), openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 1}), openflow.TCPDst(80).WithMask(0xfffe),
		rapid.SampledFrom([]openflow.OXM{openflow.NoVLAN(), openflow.AnyVLAN(), openflow.VLANVID(2)}).Draw(t, "vlan match"),
	} {
		if rapid.IntRange(0, 2).Draw(t, "with") == 0 {
			match = append(match, f)
		}
	}
	r.Match = openflow.MustMatch(match...)
	for range rapid.IntRange(0, 3).Draw(t, "actions") {
		r.Actions = append(r.Actions, rapid.SampledFrom([]openflow.Action{
			openflow.Output(1), openflow.Output(2), openflow.Output(3), openflow.Output(openflow.PortController),
			openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 1})), openflow.SetField(openflow.TCPDst(81)),
			openflow.SetField(openflow.VLANVID(2)), openflow.PopVLAN(),
		}).Draw(t, "action"))
	}
	in := rule.Installed{Rule: r, Number: rapid.Uint8Range(0, 2).Draw(t, "table")}
	if in.Number < 2 && rapid.Bool().Draw(t, "goto") {
		in.Next = in.Number + 1
	}
	return in
}
