package fake_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestInstall checks that a program behaves as in a switch with one table, with its groups,
// meters, marks and timeouts, that parts for other switches are left out, and that an error
// names what was refused.
func TestInstall(t *testing.T) {
	now := time.Unix(1000, 0)
	table := fake.NewFlowTable(func() time.Time { return now })
	way := rule.Rule{
		Switch: 1, Stage: rule.StageWay, Offset: rule.WayClass, Match: tcp(80), Meter: 7, Idle: 1500 * time.Millisecond,
		Actions: []openflow.Action{openflow.GroupAction(9)},
	}
	mark := rule.Rule{Switch: 1, Stage: rule.StageClassify, Offset: rule.ClassifyClass, Match: tcp(80), Actions: []openflow.Action{openflow.SetQueue(3)}}
	other := rule.Rule{Switch: 2, Stage: rule.StageAdmit, Match: tcp(80)}
	ask := rule.Rule{Switch: 1, Stage: rule.StageSelect, Match: tcp(81), Leased: true, Actions: []openflow.Action{openflow.Output(openflow.PortController)}}
	p := rule.Program{
		Rules:  []rule.Rule{way, mark, other, ask},
		Groups: []rule.Group{{Switch: 1, ID: 9, Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{{Actions: []openflow.Action{openflow.Output(2)}}, {Actions: []openflow.Action{openflow.Output(4)}}}}},
		Meters: []rule.Meter{{Switch: 1, ID: 7}},
	}
	if err := table.Install(1, p); err != nil {
		t.Fatal(err)
	}
	web := fake.NewPacket(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(80))
	got := table.Send(1, web)
	if !slices.Equal(got.Ports(), []uint32{2, 4}) || got.Outputs[0].Queue != 3 {
		t.Errorf("%+v: %s", got.Outputs, got.Why)
	}
	if n := len(table.Entries()); n != 2 {
		t.Errorf("%d entries, want 2", n)
	}
	now = now.Add(2 * time.Second)
	if gone := table.Expire(); len(gone) != 1 || gone[0].Reason != openflow.RemovedIdle {
		t.Errorf("gone after the idle timeout: %v", gone)
	}
	now = now.Add(rule.LeaseFor)
	if gone := table.Expire(); len(gone) != 1 || gone[0].Reason != openflow.RemovedHard {
		t.Errorf("gone after the lease: %v", gone)
	}
	if err := table.Install(1, rule.Program{Rules: []rule.Rule{{Switch: 1, Stage: rule.StageWay, Meter: 8}}}); err == nil {
		t.Error("a rule with a meter that is not there is taken")
	}
}
