package ledger

import (
	"testing"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestForget checks that switches which come and go leave nothing behind, except what owners
// want on them.
func TestForget(t *testing.T) {
	l := New(1)
	core, err := l.AddOwner("network", false)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := l.AddOwner("svc", false)
	if err != nil {
		t.Fatal(err)
	}
	declare := func(o *Owner, key string, rules ...rule.Rule) {
		t.Helper()
		c, err := l.Plan(o, key, rule.Program{Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		c.Confirm()
	}
	basic := func(sw openflow.DatapathID) rule.Rule { return rule.Rule{Switch: sw, Stage: rule.StageMiss} }
	wanted := rule.Rule{Switch: 2, Stage: rule.StageRewrite, Match: openflow.MustMatch(openflow.InPort(1))}
	declare(svc, "k", wanted)
	for _, sw := range []openflow.DatapathID{1, 2} {
		declare(core, "basics", basic(sw))
		l.Reconcile(sw, Found{Rules: []Reported{{ // a rule of an owner that is not ready
			Switch: sw, Slot: rule.Slot{Priority: 40000}, Cookie: rule.MakeCookie(svc.Hash, 0, 1),
		}}})
		l.Forget(core, "basics", sw)
	}
	if len(l.switches) != 1 || len(l.switches[2].rules) != 1 || len(l.switches[2].unclaimed) != 0 || len(core.programs) != 0 {
		t.Errorf("switches %v, the core's programs %v", l.switches, core.programs)
	}
	declare(svc, "k")
	if len(l.switches) != 0 {
		t.Errorf("what nobody wants any more is kept: %v", l.switches)
	}
	l.Forget(core, "basics", 77) // never seen
	if l.Reading(78, rule.OneTable)(); len(l.switches) != 0 {
		t.Errorf("a switch that could not be read is kept: %v", l.switches)
	}
}
