package ovs

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func port3(name string, number uint32, slot int) port {
	return port{Interface: datapath.Interface{Name: name, MAC: openflow.MAC{2, 0, 0, 0, 0, byte(number)}}, number: number, slot: slot}
}

// TestGates applies the changes between random choices to a table and compares
// with what each choice asks for.
func TestGates(t *testing.T) {
	ports := map[string]port{"a": port3("a", 1, 0), "b": port3("b", 2, 1), "c": port3("c", 7, 2)}
	names := []string{"a", "b", "c", "gone"}
	rapid.Check(t, func(t *rapid.T) {
		table, now := map[string]uint8{}, gates{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			to := gatesOf(datapath.Choice{
				Send:    rapid.SampledFrom(names).Draw(t, "send"),
				Receive: rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "receive"),
			}, ports)
			changes := now.change(to)
			for _, m := range changes {
				f := m.(*openflow.FlowMod)
				switch key := f.Match.String(); f.Command {
				case openflow.FlowAdd:
					table[key] = f.Instructions[0].Table
				case openflow.FlowDeleteStrict:
					if _, ok := table[key]; !ok {
						t.Fatalf("deletes %s, which is not there", key)
					}
					delete(table, key)
				}
			}
			if len(changes) > len(now)+len(to) {
				t.Fatalf("%d changes from %v to %v", len(changes), now, to)
			}
			if len(now.change(now)) != 0 {
				t.Fatal("a choice differs from itself")
			}
			now = to
			if len(table) != len(to) {
				t.Fatalf("the table is %v, want %v", table, to)
			}
			for number, want := range to {
				if got := table[openflow.MustMatch(openflow.InPort(number)).String()]; got != want {
					t.Fatalf("frames of port %d go to table %d, want %d", number, got, want)
				}
			}
		}
	})
}

// TestRulesEncode checks that every rule of every slot can be written.
func TestRulesEncode(t *testing.T) {
	vni := openflow.MAC{2, 0, 0, 0, 0, 0xff}
	tables := map[uint8]int{}
	for slot := range datapath.MaxInterfaces {
		p := port3("x", uint32(slot+1), slot)
		tables[p.inTable()]++
		tables[p.outTable()]++
		for _, m := range append(portRules(p, vni), removePort(p)...) {
			if _, err := m.AppendTo(nil, 1); err != nil {
				t.Errorf("%v: %v", m, err)
			}
			f := m.(*openflow.FlowMod)
			if f.Table != gate && f.Table != p.inTable() && f.Table != p.outTable() {
				t.Errorf("slot %d writes into table %d", slot, f.Table)
			}
		}
	}
	if len(tables) != 2*datapath.MaxInterfaces || tables[gate] != 0 {
		t.Errorf("the slots' tables overlap: %v", tables)
	}
}

func TestCounts(t *testing.T) {
	s := datapath.Stats{Interfaces: map[string]datapath.InterfaceStats{"a": {}}}
	names := map[int]string{3: "a"}
	for _, f := range []openflow.FlowStats{
		{Cookie: cookie(3, countSent), Packets: 1, Bytes: 10},
		{Cookie: cookie(3, countSent), Packets: 2, Bytes: 20},
		{Cookie: cookie(3, countReceived), Packets: 4, Bytes: 40},
		{Cookie: cookie(3, countInactive), Packets: 8},
		{Cookie: cookie(3, countForeign), Packets: 16},
		{Cookie: cookie(3, countOther), Packets: 32},
		{Cookie: cookie(4, countSent), Packets: 64}, // nobody's
		{Cookie: cookie(0, countUnsent), Packets: 128},
	} {
		count(&s, names, &f)
	}
	want := datapath.InterfaceStats{SentPackets: 3, SentBytes: 30, ReceivedPackets: 4, ReceivedBytes: 40, Inactive: 8, Foreign: 16}
	if got := s.Interfaces["a"]; got != want || s.Unsent != 128 || len(s.Interfaces) != 1 {
		t.Errorf("counted %+v, unsent %d", s, s.Unsent)
	}
}

func TestShieldName(t *testing.T) {
	for vni, want := range map[string]string{"vni0": "sluice_vni0", "a-b.c": "sluice_a_b_c"} {
		if got := shieldOf(vni).table; got != want {
			t.Errorf("%s: %s, want %s", vni, got, want)
		}
	}
	if err := Probe(t.Context(), Options{RunDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("an empty directory passes for an Open vSwitch: %v", err)
	}
}
