package ledger

import (
	"testing"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestSentWhileRead declares a rule from before a restart again and sends it while its switch is
// being read. The entry that was read has the old cookie, and the switch has the new one, so the
// ledger must not keep the old one.
func TestSentWhileRead(t *testing.T) {
	for _, sent := range []bool{true, false} {
		l := New(2)
		o, err := l.AddOwner("svc", false)
		if err != nil {
			t.Fatal(err)
		}
		wanted := rule.Rule{Switch: 1, Stage: rule.StageRewrite, Match: openflow.MustMatch(openflow.InPort(1))}
		plan := func() *Change {
			t.Helper()
			c, err := l.Plan(o, "k", rule.Program{Rules: []rule.Rule{wanted}})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		plan() // the switch is not connected
		over := l.Reading(1, rule.Layout{})
		if c := plan(); sent {
			l.Sending(1, c.Writes)
		}
		old := rule.MakeCookie(o.Hash, 1, 7)
		rec := l.Reconcile(1, Found{Rules: []Reported{{Switch: 1, Slot: rule.Slot{Priority: wanted.Priority(), Match: wanted.Match}, Cookie: old, Flags: flags}}})
		l.Reconciled(1, nil)
		over()
		cookie := l.switches[1].rules[wanted.Key()].Cookie
		switch {
		case sent && (cookie == old || rec.Written != 1 || rec.Kept != 0):
			t.Errorf("sent while read: %+v, the ledger has cookie %v of before", rec, cookie)
		case !sent && (cookie != old || rec.Written != 0 || rec.Kept != 1):
			t.Errorf("only declared: %+v, the ledger has cookie %v, not that of before", rec, cookie)
		}
	}
}
