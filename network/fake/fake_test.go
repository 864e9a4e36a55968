package fake_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

func tcp(port uint16, more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append(more, openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(port))...)
}

func add(t *testing.T, table *fake.FlowTable, priority uint16, m openflow.Match, out uint32) {
	t.Helper()
	if _, e := table.Flow(openflow.NewFlowMod(openflow.FlowAdd, 0, priority, m, openflow.ApplyActions(openflow.Output(out)))); e != nil {
		t.Fatal(e)
	}
}

func TestFlowTableSaysWhatHappens(t *testing.T) {
	now := time.Unix(1000, 0)
	table := fake.NewFlowTable(func() time.Time { return now })
	to80 := fake.NewPacket(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(80))
	goes := func(what string, in uint32, want ...uint32) {
		t.Helper()
		if got := table.Send(in, to80).Ports(); !slices.Equal(got, want) {
			t.Errorf("%s: the packet goes to %v, want %v", what, got, want)
		}
	}
	goes("an empty table", 1)
	add(t, table, 0, openflow.Match{}, openflow.PortController)
	goes("a table-miss entry", 1, openflow.PortController)
	add(t, table, 10, tcp(80), 2)
	add(t, table, 20, tcp(80, openflow.InPort(7)), 3)
	goes("priority 10", 1, 2)
	goes("priority 20", 7, 3)
	add(t, table, 10, tcp(80), 4)
	goes("an entry added again replaces the old one", 1, 4)
	change := openflow.NewFlowMod(openflow.FlowModify, 0, 0, tcp(80), openflow.ApplyActions(openflow.Output(5)))
	if _, e := table.Flow(change); e != nil {
		t.Fatal(e)
	}
	goes("a non-strict change", 1, 5)
	goes("a non-strict change of the narrower entry", 7, 5)
	gone, _ := table.Flow(openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, 10, tcp(80)))
	if len(gone) != 1 {
		t.Errorf("a strict deletion took %d entries, want 1", len(gone))
	}
	goes("after a strict deletion", 1, openflow.PortController)
	m := openflow.NewFlowMod(openflow.FlowAdd, 0, 30, tcp(80), openflow.ApplyActions(openflow.Output(6)))
	m.IdleTimeout, m.HardTimeout = 10, 15
	if _, e := table.Flow(m); e != nil {
		t.Fatal(e)
	}
	now = now.Add(9 * time.Second)
	goes("before the idle timeout", 1, 6)
	now = now.Add(5 * time.Second)
	if gone := table.Expire(); len(gone) != 0 {
		t.Errorf("an entry in use expired: %v", gone)
	}
	now = now.Add(time.Second)
	if gone := table.Expire(); len(gone) != 1 || gone[0].Reason != openflow.RemovedHard || gone[0].Packets != 1 {
		t.Errorf("expired %v, want the entry by its hard timeout, with one packet", gone)
	}
}

func TestActionsChangeThePacket(t *testing.T) {
	table := fake.NewFlowTable(nil)
	mac := openflow.MAC{2, 0, 0, 0, 0, 9}
	m := openflow.NewFlowMod(openflow.FlowAdd, 0, 1, tcp(80), openflow.ApplyActions(
		openflow.SetField(openflow.EthDst(mac)), openflow.SetField(openflow.TCPDst(81)), openflow.Output(1), openflow.PushVLAN(0x8100),
		openflow.SetField(openflow.VLANVID(7)), openflow.Output(2), openflow.PopVLAN(), openflow.Output(3)))
	if _, e := table.Flow(m); e != nil {
		t.Fatal(e)
	}
	out := table.Send(9, fake.NewPacket(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(80))).Outputs
	if len(out) != 3 {
		t.Fatalf("outputs %v, want three", out)
	}
	for i, vlan := range []uint64{0, 0x1007, 0} {
		dst, _ := out[i].Packet.Get(openflow.FieldEthDst)
		port, _ := out[i].Packet.Get(openflow.FieldTCPDst)
		tag, _ := out[i].Packet.Get(openflow.FieldVLANVID)
		if dst != openflow.EthDst(mac) || port.Uint() != 81 || tag.Uint() != vlan {
			t.Errorf("output %d leaves as %v, want to %v, port 81, tag %#x", i+1, out[i].Packet, mac, vlan)
		}
	}
}

// TestLookupTakesTheHighestPriority checks that the entry which handles a packet matches it, and
// that no matching entry has a higher priority. The test compares fields itself.
func TestLookupTakesTheHighestPriority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type simple struct {
			priority uint16
			in, port uint16 // 0: any
		}
		table := fake.NewFlowTable(nil)
		var all []simple
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			s := simple{rapid.Uint16Range(1, 5).Draw(t, "priority"), rapid.Uint16Range(0, 2).Draw(t, "in"), rapid.Uint16Range(0, 2).Draw(t, "port")}
			fields := []openflow.OXM{openflow.EthType(0x0800), openflow.IPProto(6)}
			if s.in > 0 {
				fields = append(fields, openflow.InPort(uint32(s.in)))
			}
			if s.port > 0 {
				fields = append(fields, openflow.TCPDst(s.port))
			}
			if _, e := table.Flow(openflow.NewFlowMod(openflow.FlowAdd, 0, s.priority, openflow.MustMatch(fields...))); e != nil {
				t.Fatal(e)
			}
			all = append(all, s)
		}
		in, port := rapid.Uint16Range(1, 2).Draw(t, "packet in"), rapid.Uint16Range(1, 2).Draw(t, "packet port")
		best := uint16(0)
		for _, s := range all {
			if (s.in == 0 || s.in == in) && (s.port == 0 || s.port == port) {
				best = max(best, s.priority)
			}
		}
		r := table.Send(uint32(in), fake.NewPacket(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(port)))
		got := uint16(0)
		if len(r.Entries) > 0 {
			got = r.Entries[0].Priority
		}
		if got != best {
			t.Fatalf("priority %d handles the packet, want %d", got, best)
		}
	})
}
