package ledger_test

import (
	"testing"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

func one(port uint16) rule.Program {
	return rule.Program{Rules: []rule.Rule{{
		Switch: 1, Stage: rule.StageRewrite,
		Match:   openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(port)),
		Actions: []openflow.Action{openflow.Output(1)},
	}}}
}

func group() rule.Program {
	return rule.Program{Groups: []rule.Group{{Switch: 1, ID: 7, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(1))}}}}
}

func plan(t *testing.T, l *ledger.Ledger, o *ledger.Owner, key string, p rule.Program) *ledger.Change {
	t.Helper()
	c, err := l.Plan(o, key, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newLedger(t *testing.T) (*ledger.Ledger, *ledger.Owner) {
	t.Helper()
	l := ledger.New(1)
	o, err := l.AddOwner("svc", false)
	if err != nil {
		t.Fatal(err)
	}
	return l, o
}

// TestRollbacksOfASharedRuleLeaveNothing rolls back both keys that share a rule, in either
// order.
func TestRollbacksOfASharedRuleLeaveNothing(t *testing.T) {
	for _, firstFirst := range []bool{true, false} {
		l, o := newLedger(t)
		a := plan(t, l, o, "a", one(80))
		b := plan(t, l, o, "b", one(80))
		if !firstFirst {
			a, b = b, a
		}
		a.Rollback()
		ops := b.Rollback()
		if left := l.SwitchRules(1); len(left) != 0 {
			t.Errorf("first first %v: the ledger holds %v, want nothing", firstFirst, left)
		}
		if len(ops) != 1 {
			t.Errorf("first first %v: the last rollback sends %d messages, want one deletion", firstFirst, len(ops))
		}
	}
}

// TestRollbackBringsBackWhatAnotherKeyGaveUp checks that a key whose change is rolled back gets
// its rule again, although the other key of that rule has given it up in between.
func TestRollbackBringsBackWhatAnotherKeyGaveUp(t *testing.T) {
	l, o := newLedger(t)
	plan(t, l, o, "a", one(80)).Confirm()
	plan(t, l, o, "b", one(80)).Confirm()
	a := plan(t, l, o, "a", one(81))
	plan(t, l, o, "b", rule.Program{}).Confirm()
	ops := a.Rollback()
	if got := l.Rules(o, "a"); len(got) != 1 || got[0].Match != one(80).Rules[0].Match {
		t.Errorf("key a holds %v, want its rule of before", got)
	}
	if len(ops) != 2 {
		t.Errorf("the rollback sends %d messages, want a deletion and an addition", len(ops))
	}
}

// TestRollbackLeavesSharedGroups checks that a rollback of one key keeps a group that another
// key wants.
func TestRollbackLeavesSharedGroups(t *testing.T) {
	l, o := newLedger(t)
	a := plan(t, l, o, "a", group())
	b := plan(t, l, o, "b", group())
	if ops := a.Rollback(); len(ops) != 0 {
		t.Errorf("the rollback of one key sends %v, want nothing: the other still wants the group", ops)
	}
	b.Confirm()
	if ops := plan(t, l, o, "b", rule.Program{}).Deletes; len(ops) != 1 {
		t.Errorf("giving up the group sends %d messages, want one deletion", len(ops))
	}
}
